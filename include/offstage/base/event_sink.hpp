// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Where events go.

#include <offstage/base/config.hpp>
#include <offstage/base/event.hpp>

OFFSTAGE_NAMESPACE_BEGIN

/// Receives events. A null sink costs one pointer test per event.
///
/// @par Threads
/// `on_event` runs on the thread that caused the event and may run on several threads at once. It
/// must not call back into the object that sent the event: a lock of that object may be held.
class EventSink {
 public:
  virtual ~EventSink() = default;

  /// Takes one event. Must not throw: a failure to observe must not become a failure to run.
  virtual void on_event(const Event& event) noexcept = 0;
};

OFFSTAGE_NAMESPACE_END
