// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// A sink that keeps what it was told.

#include <offstage/base/config.hpp>
#include <offstage/base/event.hpp>
#include <offstage/base/event_sink.hpp>

#include <c10/core/Device.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing {

/// An Event that owns its texts.
struct RecordedEvent {
  EventKind kind = EventKind::kErrorDropped;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  std::string component;
  std::string reason;
  std::string message;
  std::int64_t bytes = 0;
  std::chrono::nanoseconds duration{};
  std::map<std::string, std::int64_t> figures;
};

/// Keeps a copy of every event, in the order of arrival.
///
/// @par Threads
/// All members may be called concurrently.
class RecordingSink final : public EventSink {
 public:
  void on_event(const Event& event) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      RecordedEvent& recorded =
          events_.emplace_back(RecordedEvent{.kind = event.kind,
                                             .device = event.device,
                                             .component = std::string(event.component),
                                             .reason = std::string(event.reason),
                                             .message = std::string(event.message),
                                             .bytes = event.bytes,
                                             .duration = event.duration,
                                             .figures = {}});
      for (const EventFigure& figure : event.figures) {
        recorded.figures.emplace(figure.name, figure.value);
      }
    } catch (...) {
      // Out of memory: a sink must not throw. The test that misses the event will say so.
    }
  }

  /// A copy of all events so far.
  [[nodiscard]] std::vector<RecordedEvent> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }

  /// A copy of the events of one kind.
  [[nodiscard]] std::vector<RecordedEvent> events(EventKind kind) const {
    const std::lock_guard lock(mutex_);
    std::vector<RecordedEvent> found;
    for (const RecordedEvent& event : events_) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }

  [[nodiscard]] std::size_t count(EventKind kind) const { return events(kind).size(); }

  void clear() {
    const std::lock_guard lock(mutex_);
    events_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<RecordedEvent> events_;
};

}  // namespace testing
OFFSTAGE_NAMESPACE_END
