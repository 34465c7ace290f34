// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What happened when, in the virtual time of the simulated accelerator.

#include <offstage/base/config.hpp>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing {

/// What a task needs for itself while it runs.
enum class Engine : unsigned char {
  kNone,     ///< Takes no time.
  kCompute,  ///< One kernel, or copy inside the device, at a time a device.
  kH2d,      ///< One copy from the host at a time a device.
  kD2h,      ///< One copy to the host at a time a device.
  kPeer,     ///< One copy to another device at a time a device.
};

/// The stable spelling: "none", "compute", "h2d", "d2h", "peer".
[[nodiscard]] std::string_view to_string(Engine engine) noexcept;

/// One task. Times count from the start of the simulation, or its last reset.
struct TimelineSpan {
  std::string name;
  std::string stream;  ///< "sim:0 stream 3".
  Engine engine = Engine::kNone;
  std::chrono::nanoseconds queued{0};  ///< When the host had queued it.
  std::chrono::nanoseconds start{0};
  std::chrono::nanoseconds end{0};
};

/// Sums over one stream.
struct StreamTime {
  std::string stream;
  std::chrono::nanoseconds busy{0};
  /// Time in which a queued task could not start because of an event it waits for, or because its
  /// engine was taken; time behind tasks of the same stream is not in it.
  std::chrono::nanoseconds stalled{0};
  std::chrono::nanoseconds end{0};  ///< Of its last task.
};

struct Timeline {
  std::vector<TimelineSpan> spans;   ///< In the order of queueing; empty unless recording is on.
  std::vector<StreamTime> streams;   ///< Those that were used, in the order of their first use.
  std::chrono::nanoseconds host{0};  ///< What the host's clock shows.
  std::chrono::nanoseconds host_waited{0};  ///< How much of that it waited for devices.
  std::chrono::nanoseconds makespan{0};     ///< The end of the last task, or the host's clock.
};

}  // namespace testing
OFFSTAGE_NAMESPACE_END
