// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// One reusable event of a device that may have no events.

#include <offstage/base/config.hpp>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

OFFSTAGE_NAMESPACE_BEGIN

/// Marks a point in one stream for other streams, or the host, to wait for.
///
/// Wraps `c10::Event` so that code need not ask what a device can do: on a device without events
/// (the CPU, where everything already happened) each call does nothing. Recording again makes a new
/// version; streams that already wait keep waiting for the version they were given.
///
/// @par Threads
/// Not thread-safe, as `c10::Event` is not: guard it with the mutex of its owner.
class StreamEvent {
 public:
  /// @param device_type  CPU gives an event that does nothing.
  explicit StreamEvent(c10::DeviceType device_type) {
    if (device_type != c10::DeviceType::CPU) event_.emplace(device_type);
  }

  /// Marks the work queued on `stream` so far.
  void record(const c10::Stream& stream) {
    if (event_) event_->record(stream);
  }

  /// Makes later work on `stream` wait for the mark. The host does not wait. Nothing if no mark was
  /// ever made.
  void block(const c10::Stream& stream) const {
    if (event_) event_->block(stream);
  }

  /// Makes the host wait for the mark.
  void synchronize() const {
    if (event_) event_->synchronize();
  }

 private:
  std::optional<c10::Event> event_;
};

OFFSTAGE_NAMESPACE_END
