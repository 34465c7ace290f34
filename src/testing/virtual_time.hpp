// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// When each task would run, by a cost model.

#include "vector_clock.hpp"

#include <offstage/base/config.hpp>
#include <offstage/testing/cost_model.hpp>
#include <offstage/testing/timeline.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

using Nanoseconds = std::chrono::nanoseconds;

/// One thing that does one task at a time.
class EngineSchedule {
 public:
  /// Takes the earliest gap of `cost` that does not begin before `ready`. @returns its start.
  Nanoseconds take(Nanoseconds ready, Nanoseconds cost);
  /// Nothing will ask for time before `now` any more.
  void forget_before(Nanoseconds now);

 private:
  std::map<Nanoseconds, Nanoseconds> busy_;  // Start and end, disjoint.
};

/// The clocks of the host, the streams and the engines. A task starts when its stream has come to
/// it, its events are reached, the host has queued it, and its engine has a gap.
/// Not thread-safe: its owner holds a lock.
class VirtualTime {
 public:
  explicit VirtualTime(std::size_t devices);

  void add_stream(std::size_t device, std::string name);  ///< As `RaceChecker::add_actor`.

  CostModel costs;
  bool recording = false;

  /// @throws InvalidArgument  for a cost that is negative, or that the clock has no room for.
  void check(const std::string& name, Nanoseconds cost) const;

  /// Queues a task; its cost comes on top of the time of queueing.
  void run(ActorId id, const std::string& name, Engine engine, Nanoseconds cost);

  /// When what is queued on `stream` will be done.
  [[nodiscard]] Nanoseconds tail(ActorId stream) const;
  /// @param delay  What the wait takes beyond that.
  void wait(ActorId stream, Nanoseconds until, Nanoseconds delay = {});
  void host_wait(Nanoseconds until);
  void host_work(Nanoseconds duration) { host_ += duration; }
  [[nodiscard]] Nanoseconds now() const noexcept { return host_; }

  [[nodiscard]] Timeline timeline() const;
  void reset();

 private:
  struct Stream {
    std::size_t device = 0;
    std::string name;
    bool used = false;
    Nanoseconds own_end{0};  // Of its last task.
    Nanoseconds ready{0};    // The same, or the event it has to wait for.
    Nanoseconds busy{0};
    Nanoseconds stalled{0};
  };
  using Engines = std::array<EngineSchedule, 5>;

  std::vector<Stream> streams_;  // [0] stands for the host and is not used.
  std::vector<ActorId> order_;   // Those that were used, in the order of their first use.
  std::vector<Engines> engines_;
  std::vector<TimelineSpan> spans_;
  Nanoseconds latest_{0};  // No task ends later.
  Nanoseconds host_{0};
  Nanoseconds host_waited_{0};
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
