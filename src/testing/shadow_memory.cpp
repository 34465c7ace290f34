// SPDX-License-Identifier: Apache-2.0
#include "shadow_memory.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

/// Adds a read and drops that of its actor which it stands for: whatever is unordered with the
/// older one is unordered with the new one too.
template <class Touches>
void replace_older(Touches& touches, const Touch& touch) {
  const auto older = std::find_if(touches.begin(), touches.end(),
                                  [&](const Touch& t) { return t.actor() == touch.actor(); });
  if (older == touches.end()) {
    touches.push_back(touch);
  } else {
    *older = touch;
  }
}

bool have_one_history(const Cell& left, const Cell& right) {
  const auto same_task = [](const Touch& l, const Touch& r) { return l.task == r.task; };
  return left.state == right.state && left.write.task == right.write.task &&
         std::equal(left.reads.begin(), left.reads.end(), right.reads.begin(), right.reads.end(),
                    same_task);
}

}  // namespace

void ShadowMemory::open_block(Address begin, Address end) {
  blocks_.erase(first_reaching(blocks_, begin), blocks_.lower_bound(end));
  blocks_[begin].end = end;
}

std::optional<std::pair<Address, Address>> ShadowMemory::block_of(Address begin,
                                                                  Address end) const {
  const auto block = first_reaching(blocks_, begin);
  if (block == blocks_.end() || begin < block->first || block->second.end < end) {
    return std::nullopt;
  }
  return std::pair(block->first, block->second.end);
}

Cell& ShadowMemory::reset(Address begin, Address end, MemoryState state) {
  cut(begin);
  cut(end);
  cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(end));
  return cells_.emplace(begin, Cell{end, state, {}, {}, {}}).first->second;
}

void ShadowMemory::remove(Address begin, Address end) {
  cut(begin);
  cut(end);
  cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(end));
  blocks_.erase(blocks_.lower_bound(begin), blocks_.lower_bound(end));
}

void ShadowMemory::forget_uses(bool assume_written) {
  for (auto& [begin, cell] : cells_) {
    cell.write = {};
    cell.freed = {};
    cell.reads.clear();
    if (assume_written && cell.state == MemoryState::kAllocated) cell.state = MemoryState::kWritten;
  }
  for (auto& [begin, block] : blocks_) {
    block.writes.clear();
    block.reads.clear();
  }
}

void ShadowMemory::add_read(const Touch& touch, const VectorClock& host) {
  const Address begin = touch.layout().begin();
  const Address end = touch.layout().end();
  if (!touch.layout().dense()) {
    for (auto block = first_reaching(blocks_, begin); block != blocks_.end() && block->first < end;
         ++block) {
      block->second.reads.add(touch, host);
    }
    return;
  }
  cut(begin);
  cut(end);
  const auto last = cells_.lower_bound(end);
  for (auto cell = cells_.lower_bound(begin); cell != last; ++cell) {
    replace_older(cell->second.reads, touch);
  }
}

void ShadowMemory::add_write(const Touch& touch, const VectorClock& host) {
  const Address begin = touch.layout().begin();
  const Address end = touch.layout().end();
  const bool dense = touch.layout().dense();
  for (auto block = first_reaching(blocks_, begin); block != blocks_.end() && block->first < end;
       ++block) {
    Block& each = block->second;
    if (!dense) {
      each.writes.add(touch, host);
      continue;
    }
    // It comes after them, or the race has been reported: it stands for them.
    if (each.writes.lie_in(begin, end)) each.writes.clear();
    if (each.reads.lie_in(begin, end)) each.reads.clear();
  }
  if (dense) {
    reset(begin, end, MemoryState::kWritten).write = touch;
  } else {
    mark_written(touch.layout());
  }
}

void ShadowMemory::mark_written(const ByteLayout& layout) {
  constexpr std::int64_t kRunsMax = 32;  // Beyond that the gaps count as written too.
  if (layout.run_count() > kRunsMax) {
    mark_written(layout.begin(), layout.end());
    return;
  }
  layout.any_run([this](Address begin, Address end) {
    mark_written(begin, end);
    return false;
  });
}

void ShadowMemory::mark_written(Address begin, Address end) {
  const auto is_fresh = [](const Cell& cell) { return cell.state == MemoryState::kAllocated; };
  for (const Address at : {begin, end}) {
    const auto around = first_reaching(cells_, at);
    if (around != cells_.end() && around->first < at && is_fresh(around->second)) cut(at);
  }
  const auto last = cells_.lower_bound(end);
  for (auto cell = cells_.lower_bound(begin); cell != last; ++cell) {
    if (!is_fresh(cell->second)) continue;
    cell->second.state = MemoryState::kWritten;
    if (cell == cells_.begin()) continue;
    const auto previous = std::prev(cell);
    if (previous->second.end != cell->first || !have_one_history(previous->second, cell->second)) {
      continue;
    }
    previous->second.end = cell->second.end;
    cells_.erase(cell);
    cell = previous;
  }
}

std::vector<std::pair<Address, Address>> ShadowMemory::unwritten_in(
    const ByteLayout& layout) const {
  std::vector<std::pair<Address, Address>> unwritten;
  any_cell(layout.begin(), layout.end(), [&](Address begin, const Cell& cell) {
    if (cell.state == MemoryState::kAllocated) {
      unwritten.emplace_back(std::max(begin, layout.begin()), std::min(cell.end, layout.end()));
    }
    return false;
  });
  return unwritten;
}

bool ShadowMemory::is_written_in(const ByteLayout& layout) const {
  return any_cell(layout.begin(), layout.end(), [&](Address begin, const Cell& cell) {
    return cell.state == MemoryState::kWritten && layout.touches(begin, cell.end);
  });
}

void ShadowMemory::mark_unwritten(Address begin, Address end) {
  cut(begin);
  cut(end);
  const auto last = cells_.lower_bound(end);
  for (auto cell = cells_.lower_bound(begin); cell != last; ++cell) {
    if (cell->second.state == MemoryState::kWritten) cell->second.state = MemoryState::kAllocated;
  }
}

void ShadowMemory::cut(Address at) {
  auto cell = cells_.lower_bound(at);
  if (cell == cells_.begin()) return;
  --cell;
  if (cell->second.end <= at) return;
  Cell rest = cell->second;
  cell->second.end = at;
  cells_.emplace(at, std::move(rest));
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
