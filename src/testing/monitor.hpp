// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Through here goes everything that is queued: it is checked, timed, and handed to its stream.

#include "access.hpp"
#include "graveyard.hpp"
#include "latch.hpp"
#include "race_checker.hpp"
#include "stream_queue.hpp"
#include "vector_clock.hpp"
#include "virtual_time.hpp"

#include <offstage/base/config.hpp>
#include <offstage/testing/cost_model.hpp>
#include <offstage/testing/race_report.hpp>
#include <offstage/testing/timeline.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// A task on its way to a stream.
struct Work {
  std::string name;
  Engine engine = Engine::kNone;
  Nanoseconds cost{0};
  Accesses accesses;
  StreamQueue::Task run;
  bool reported = false;               ///< A race of it is known already.
  std::function<void()> counted = {};  ///< Called when it is queued, if set.
};

/// A point in the work of a stream, in the three senses of it: what has run, what happened before,
/// and when. One recording of an event. Made by default: reached at the start; so is one that was
/// made before the last `Monitor::reset()`, and nothing happened before that.
struct Mark {
  StreamMarker marker;
  VectorClock seen;
  Nanoseconds time{0};
  std::uint64_t epoch = 0;  ///< How often the monitor had been reset.
};

/// The race checker and the virtual time, and one lock over both: tasks are checked in the order in
/// which they are queued.
///
/// Thread-safe. Its lock may be taken while another of the simulator's is held, never the other way
/// round; workers do not take it.
class Monitor {
 public:
  explicit Monitor(std::size_t devices) : time_(devices) {}

  [[nodiscard]] ActorId add_stream(std::size_t device, const std::string& name);
  /// Its tasks may use memory that is buried.
  void watch(StreamQueue& stream) { graveyard_.watch(stream); }

  // --- settings ---
  void set_race_action(RaceAction action);
  [[nodiscard]] RaceAction race_action() const;
  void set_costs(CostModel costs);
  [[nodiscard]] CostModel costs() const;
  void set_recording(bool on);
  [[nodiscard]] Timeline timeline() const;
  [[nodiscard]] std::vector<RaceReport> races() const;
  void host_work(Nanoseconds duration);
  /// The same for the program. @throws InvalidArgument if the clock has no room for it.
  void advance_host(Nanoseconds duration);

  // --- tasks ---

  /// A task whose memory is not there is not run: it fails as one on a real device would.
  /// @throws RaceError if the action is kThrow, InvalidArgument for a cost that cannot be; the task
  ///         is not queued then.
  void submit(StreamQueue& stream, Work work);
  /// Looks whether `work` will use memory that was given back: before memory for its results is
  /// taken, which may be the same.
  /// @throws RaceError if the action is kThrow.
  void check_lifetimes(StreamQueue& stream, Work& work);
  /// The same, and waits until it has run: because the program waits (it is then ordered and timed
  /// as such), or only because the simulator must. What the task throws is thrown here.
  void submit_and_wait(StreamQueue& stream, Work work, bool program_waits);

  // --- order ---
  [[nodiscard]] Mark mark(StreamQueue& stream);
  /// The same for the program: it costs the host time.
  [[nodiscard]] Mark record(StreamQueue& stream);
  void wait(StreamQueue& stream, const Mark& mark);
  /// Blocks the calling thread.
  /// @param orders  False: takes the host's time, but the program may not rely on it.
  void host_wait(const Mark& mark, bool orders = true);
  /// Whether it is reached in virtual time; then waits until it is in fact. False while a hold
  /// keeps it from being so.
  /// @param program_asks  True: costs the host time, and a yes orders what comes after.
  [[nodiscard]] bool reached(const Mark& mark, bool program_asks);
  /// Of virtual time.
  [[nodiscard]] double milliseconds_between(const Mark& first, const Mark& second) const;
  /// Notes a hold of a stream, until it is opened.
  void add_hold(StreamQueue& stream, const std::shared_ptr<Latch>& hold);
  /// The names of the streams that are held, with commas between them.
  [[nodiscard]] std::string held_streams() const;
  void open_holds() noexcept;

  // --- memory ---
  void allocate(StreamQueue& stream, const void* data, std::int64_t bytes, bool new_segment);
  /// A block goes back, after what `stream` has queued and what the events of `users` saw. It is
  /// judged here and not again when it is reused. A finding that is to be thrown waits in the
  /// stream's error slot.
  void free(StreamQueue& stream, const void* data, std::int64_t bytes,
            std::span<const Mark> users) noexcept;
  void release(const void* data, std::int64_t bytes);
  /// Unmaps memory when no task that is queued now can use it any more. Waits for nothing.
  void bury(void* data, std::int64_t bytes) noexcept { graveyard_.bury(data, bytes); }
  void sweep() noexcept { graveyard_.sweep(); }

  void watch_host(const void* data, std::int64_t bytes);
  void forget_host(const void* data, std::int64_t bytes);
  /// Pinned memory is given back without having been unregistered. What is wrong with that waits in
  /// `errors()`.
  void free_host(const void* data, std::int64_t bytes) noexcept;
  /// @throws RaceError if the action is kThrow.
  void host_access(std::string name, const void* data, std::int64_t bytes, bool writes);
  void host_access(std::string name, Accesses accesses);

  /// What was found in calls that cannot throw and belong to no device: for the next
  /// synchronisation of any.
  [[nodiscard]] ErrorSlot& errors() noexcept { return errors_; }

  /// Between tests, when nothing is queued: time starts anew, and no use or order is remembered.
  void reset();

 private:
  void submit(StreamQueue& stream, Work work, std::exception_ptr* error);
  void handle(const RaceReport& report);
  [[nodiscard]] bool is_held() const;
  /// The time of a mark, which starts anew with each epoch.
  [[nodiscard]] Nanoseconds time_of(const Mark& mark) const;
  [[nodiscard]] bool is_current(const Mark& mark) const { return mark.epoch == epoch_; }

  mutable std::mutex mutex_;
  std::uint64_t epoch_ = 0;
  RaceAction action_ = RaceAction::kThrow;
  RaceChecker checker_;
  VirtualTime time_;
  Graveyard graveyard_;
  ErrorSlot errors_;
  std::vector<RaceReport> races_;
  struct Hold {
    ActorId stream;
    std::weak_ptr<Latch> latch;
    [[nodiscard]] bool closed() const;
  };
  std::vector<Hold> holds_;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
