// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Uses of one block that leave gaps.

#include "access.hpp"
#include "vector_clock.hpp"

#include <offstage/base/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// A task that was checked, as later reports name it.
struct TaskRecord {
  ActorId actor = kHost;
  std::uint64_t number = 0;  ///< Among the tasks of its actor, from 1 on.
  std::uint64_t place = 0;   ///< Among all tasks, from 1 on.
  std::string name;
  Accesses accesses;
};

/// One use of a stretch of memory by a task; by default none.
struct Touch {
  std::shared_ptr<const TaskRecord> task;
  const Access* access = nullptr;  ///< One of the task's.

  [[nodiscard]] ActorId actor() const noexcept { return task->actor; }
  [[nodiscard]] std::uint64_t number() const noexcept { return task->number; }
  [[nodiscard]] std::uint64_t place() const noexcept { return task ? task->place : 0; }
  [[nodiscard]] const ByteLayout& layout() const noexcept { return access->layout; }
};

/// Uses with gaps, all reads or all writes of one block. They are no part of the history of single
/// stretches: each would cut the block at its ends, and be looked at in every piece.
///
/// Of each actor there is a list in the order of its tasks, so that those which a later task comes
/// after are passed over without being looked at.
class SparseUses {
 public:
  /// @param host  Uses that the host has waited for are before everything to come; they go.
  void add(const Touch& touch, const VectorClock& host);

  /// [begin, end) holds them all.
  [[nodiscard]] bool lie_in(Address begin, Address end) const noexcept {
    return begin <= begin_ && end_ <= end;
  }

  void clear() { *this = {}; }

  /// Calls `visit(touch)` for the uses that `seen` does not come after, until it returns true. Of
  /// an actor's the last comes first: who waits for it has waited for all.
  /// @returns true if a call did.
  template <class Visit>
  bool any_beyond(const VectorClock& seen, const Visit& visit) const {
    for (const auto& [actor, list] : lists_) {
      const std::uint64_t known = seen[actor];
      if (list.touches.back().number() <= known) continue;
      const auto first = std::ranges::upper_bound(list.touches, known, {},
                                                  [](const Touch& t) { return t.number(); });
      if (std::any_of(list.touches.rbegin(), std::make_reverse_iterator(first), visit)) return true;
    }
    return false;
  }

 private:
  struct List {
    std::vector<Touch> touches;        // Never empty.
    std::size_t size_to_thin_at = 64;  // It then holds twice what was left the last time.
    void thin(std::uint64_t host_knows);
  };

  std::map<ActorId, List> lists_;
  Address begin_ = ~Address{0};
  Address end_ = 0;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
