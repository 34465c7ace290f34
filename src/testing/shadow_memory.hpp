// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Who used which bytes last.

#include "access.hpp"
#include "vector_clock.hpp"

#include <offstage/base/config.hpp>

#include <c10/util/SmallVector.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// A task that was checked, as later reports name it.
struct TaskRecord {
  ActorId actor = kHost;
  std::uint64_t number = 0;  ///< Among the tasks of its actor, from 1 on.
  std::string name;
  Accesses accesses;
};

/// One use of a stretch of memory by a task.
struct Touch {
  std::shared_ptr<const TaskRecord> task;
  const Access* access = nullptr;  ///< One of the task's.

  [[nodiscard]] ActorId actor() const noexcept { return task->actor; }
  [[nodiscard]] std::uint64_t number() const noexcept { return task->number; }
  /// False if the access has gaps, so that a stretch inside it may be untouched.
  [[nodiscard]] bool whole() const noexcept { return access->layout.dense(); }
};

/// What is known of a stretch of memory.
enum class MemoryState : std::uint8_t { kAllocated, kWritten, kFreed };

/// A stretch of bytes with one history.
struct Cell {
  Address end = 0;
  MemoryState state = MemoryState::kAllocated;
  c10::SmallVector<Touch, 1> writes;  ///< The last that covers it, and later ones with gaps.
  c10::SmallVector<Touch, 2> reads;   ///< Since the last write that covers it; the last a stream.
};

/// The cells of all memory that is watched: device blocks and pinned host ranges.
class ShadowMemory {
 public:
  using Cells = std::map<Address, Cell>;

  /// Replaces what is known of [begin, end) by one cell.
  Cell& reset(Address begin, Address end, MemoryState state);

  /// Sets the state of the cell that begins at `begin`.
  void set_state(Address begin, MemoryState state) { cells_.at(begin).state = state; }

  /// Forgets who used the cells; their states stay, or all in use become written.
  void forget_uses(bool assume_written);

  /// Forgets [begin, end).
  void remove(Address begin, Address end);

  /// Calls `visit(cell_begin, cell)` for each cell that overlaps [begin, end), in order, until it
  /// returns true. @returns true if a call did.
  template <class Visit>
  bool any_cell(Address begin, Address end, const Visit& visit) const {
    for (auto cell = first_reaching(begin); cell != cells_.end() && cell->first < end; ++cell) {
      if (visit(cell->first, cell->second)) return true;
    }
    return false;
  }

  /// Notes a read.
  void add_read(const Touch& touch);

  /// Notes a write. One without gaps leaves one cell.
  void add_write(const Touch& touch);

 private:
  [[nodiscard]] Cells::const_iterator first_reaching(Address begin) const;
  /// Cuts the cell around `at`, if there is one, so that a cell begins there.
  void cut(Address at);

  Cells cells_;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
