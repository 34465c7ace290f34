// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Decides when a task is queued whether something orders it behind all that it depends on.

#include "access.hpp"
#include "shadow_memory.hpp"
#include "vector_clock.hpp"

#include <offstage/base/config.hpp>
#include <offstage/testing/race_report.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// A happens-before checker over streams, events and waits of the host.
///
/// Whether a race is found does not depend on when anything runs, only on the order in which tasks
/// are queued. All host threads count as one actor: what they hand over under a mutex is ordered.
/// Not thread-safe: its owner holds a lock.
class RaceChecker {
 public:
  RaceChecker();

  /// A stream, by the name that reports call it.
  [[nodiscard]] ActorId add_actor(std::string name);
  [[nodiscard]] const std::string& name_of(ActorId actor) const { return names_[actor]; }

  // --- order ---

  /// Everything queued on `actor` so far: what an event remembers.
  [[nodiscard]] VectorClock snapshot(ActorId actor) const;
  /// What is queued on `actor` from here on happens after what `seen` saw.
  void wait(ActorId actor, const VectorClock& seen);
  /// The host has waited for what `seen` saw.
  void host_wait(const VectorClock& seen);

  // --- memory ---

  /// A block was handed out to `actor`: a write of it.
  void allocate(ActorId actor, Address begin, Address end);

  /// A block goes back: a write of it by `actor` after what `seen` saw (streams recorded on it).
  /// It is done in any case.
  std::optional<RaceReport> free(ActorId actor, Address begin, Address end,
                                 const VectorClock& seen);

  /// Memory went back to the device, or was unregistered.
  void forget(Address begin, Address end);

  /// Host memory was pinned: its contents are valid.
  void watch_host(Address begin, Address end);

  // --- tasks ---

  /// What is wrong with a task that `actor` is about to be given; nothing is noted.
  [[nodiscard]] std::optional<RaceReport> check(ActorId actor, const std::string& name,
                                                const Accesses& accesses) const;

  /// The same, but only uses of memory that was given back. For before the task's results get
  /// memory: that may be the same.
  [[nodiscard]] std::optional<RaceReport> check_lifetimes(ActorId actor, const std::string& name,
                                                          const Accesses& accesses) const;

  /// True if every byte of device memory is in a block, or was.
  [[nodiscard]] bool are_mapped(const Accesses& accesses) const;

  /// The task is queued: later ones are checked against it.
  void add(ActorId actor, std::string name, Accesses accesses);

  /// Forgets all uses, and takes all memory for written: uses were not told for a while.
  void assume_written();

  /// Forgets all uses and orders, but not which memory there is. For between two tests, when
  /// nothing is queued.
  void reset();

  // --- what it costs ---

  /// Uses of earlier tasks that were compared with one of a later task, so far.
  [[nodiscard]] std::uint64_t comparisons() const noexcept { return comparisons_; }
  /// Stretches of memory that are told apart.
  [[nodiscard]] std::size_t cell_count() const noexcept { return memory_.cell_count(); }

 private:
  struct Suspect;

  [[nodiscard]] VectorClock clock_of(ActorId actor) const;
  [[nodiscard]] std::optional<RaceReport> check(const Suspect& suspect) const;
  [[nodiscard]] std::optional<RaceReport> check(const Suspect& suspect, const Access& access) const;
  void note(ActorId actor, std::string name, Accesses accesses);
  /// The part of what `copy` writes that is to count as never written, because its source does.
  [[nodiscard]] std::vector<std::pair<Address, Address>> unwritten_after(
      const Access& copy, const Accesses& accesses) const;
  [[nodiscard]] std::string history_of(const Cell& cell) const;
  [[nodiscard]] std::optional<RaceReport> check_cells(const Suspect& suspect,
                                                      const Access& access) const;
  [[nodiscard]] std::optional<RaceReport> check_sparse_uses(const Suspect& suspect,
                                                            const Access& access) const;

  [[nodiscard]] RaceTask describe(const TaskRecord& task, bool writes) const;
  [[nodiscard]] std::string describe_range(Address begin, Address end) const;
  [[nodiscard]] RaceReport report(RaceKind kind, const Suspect& suspect, const Access& access,
                                  const Touch* first, bool first_writes, Address begin,
                                  Address end) const;

  std::vector<std::string> names_;
  std::vector<VectorClock> clocks_;  // One for each actor.
  ShadowMemory memory_;
  std::uint64_t tasks_ = 0;
  mutable std::uint64_t comparisons_ = 0;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
