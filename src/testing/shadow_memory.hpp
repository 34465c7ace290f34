// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Who used which bytes last.

#include "access.hpp"
#include "sparse_uses.hpp"
#include "vector_clock.hpp"

#include <offstage/base/config.hpp>

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// What is known of a stretch of memory.
enum class MemoryState : std::uint8_t { kAllocated, kWritten, kFreed };

/// A stretch of bytes with one history, uses with gaps left out.
struct Cell {
  Address end = 0;
  MemoryState state = MemoryState::kAllocated;
  Touch write;                       ///< The last that covers it, if any.
  c10::SmallVector<Touch, 2> reads;  ///< Since then; the last of each actor.
  Touch freed;  ///< Of memory in use that nothing has written: what gave it back before, if any.
};

/// The cells of all memory that is watched: device blocks and pinned host ranges; and for each
/// block or range its uses with gaps.
class ShadowMemory {
 public:
  using Cells = std::map<Address, Cell>;

  /// A block or range begins its life, in the place of those that overlap it.
  void open_block(Address begin, Address end);

  /// The block or range that [begin, end) lies in: its first byte and the one behind its last.
  [[nodiscard]] std::optional<std::pair<Address, Address>> block_of(Address begin,
                                                                    Address end) const;

  /// Replaces what is known of [begin, end) by one cell.
  Cell& reset(Address begin, Address end, MemoryState state);

  /// Sets the state of the cell that begins at `begin`.
  void set_state(Address begin, MemoryState state) { cells_.at(begin).state = state; }

  /// The cell that begins at `begin` has been handed out. @param freed  See `Cell`.
  void set_fresh(Address begin, Touch freed) {
    Cell& cell = cells_.at(begin);
    cell.state = MemoryState::kAllocated;
    cell.freed = std::move(freed);
  }

  /// Forgets who used the cells; their states stay, or all in use become written.
  void forget_uses(bool assume_written);

  /// Forgets [begin, end), which holds whole blocks.
  void remove(Address begin, Address end);

  /// Calls `visit(cell_begin, cell)` for each cell that overlaps [begin, end), in order, until it
  /// returns true. @returns true if a call did.
  template <class Visit>
  bool any_cell(Address begin, Address end, const Visit& visit) const {
    for (auto cell = first_reaching(cells_, begin); cell != cells_.end() && cell->first < end;
         ++cell) {
      if (visit(cell->first, cell->second)) return true;
    }
    return false;
  }

  /// Calls `visit(touch, writes)` for the uses with gaps of the blocks that overlap [begin, end)
  /// which `seen` does not come after, until it returns true. @returns true if a call did.
  template <class Visit>
  bool any_sparse_use(Address begin, Address end, bool reads_too, const VectorClock& seen,
                      const Visit& visit) const {
    for (auto block = first_reaching(blocks_, begin); block != blocks_.end() && block->first < end;
         ++block) {
      const Block& each = block->second;
      if (each.writes.any_beyond(seen, [&](const Touch& touch) { return visit(touch, true); }) ||
          (reads_too &&
           each.reads.any_beyond(seen, [&](const Touch& touch) { return visit(touch, false); }))) {
        return true;
      }
    }
    return false;
  }

  /// Notes a read. @param host  What the host has waited for.
  void add_read(const Touch& touch, const VectorClock& host);

  /// Notes a write. One without gaps leaves one cell.
  void add_write(const Touch& touch, const VectorClock& host);

  /// The stretches of `layout`'s hull that nothing has written.
  [[nodiscard]] std::vector<std::pair<Address, Address>> unwritten_in(
      const ByteLayout& layout) const;
  /// True if one of its bytes has been written.
  [[nodiscard]] bool is_written_in(const ByteLayout& layout) const;
  /// What is written there counts as never written from here on.
  void mark_unwritten(Address begin, Address end);

  [[nodiscard]] std::size_t cell_count() const noexcept { return cells_.size(); }

 private:
  struct Block {
    Address end = 0;
    SparseUses writes;
    SparseUses reads;
  };
  using Blocks = std::map<Address, Block>;

  /// The first of a map of stretches that has a byte at or behind `begin`.
  template <class Stretches>
  [[nodiscard]] static auto first_reaching(Stretches& stretches, Address begin) {
    auto found = stretches.upper_bound(begin);
    if (found != stretches.begin() && std::prev(found)->second.end > begin) --found;
    return found;
  }
  /// Cuts the cell around `at`, if there is one, so that a cell begins there.
  void cut(Address at);
  /// What is in use there is written from here on.
  void mark_written(const ByteLayout& layout);
  void mark_written(Address begin, Address end);

  Cells cells_;
  Blocks blocks_;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
