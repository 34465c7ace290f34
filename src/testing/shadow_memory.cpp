// SPDX-License-Identifier: Apache-2.0
#include "shadow_memory.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

/// Adds a touch and drops those of its stream that it stands for: whatever is unordered with one of
/// them is unordered with the new one too, if that covers at least the same bytes.
template <class Touches>
void replace_older(Touches& touches, const Touch& touch) {
  const auto stands_for = [&](const Touch& older) {
    return older.actor() == touch.actor() &&
           (touch.whole() || older.access->layout == touch.access->layout);
  };
  touches.erase(std::remove_if(touches.begin(), touches.end(), stands_for), touches.end());
  touches.push_back(touch);
}

}  // namespace

Cell& ShadowMemory::reset(Address begin, Address end, MemoryState state) {
  remove(begin, end);
  return cells_.emplace(begin, Cell{end, state, {}, {}}).first->second;
}

void ShadowMemory::remove(Address begin, Address end) {
  cut(begin);
  cut(end);
  cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(end));
}

void ShadowMemory::forget_uses(bool assume_written) {
  for (auto& [begin, cell] : cells_) {
    cell.writes.clear();
    cell.reads.clear();
    if (assume_written && cell.state == MemoryState::kAllocated) cell.state = MemoryState::kWritten;
  }
}

void ShadowMemory::add_read(const Touch& touch) {
  const Address begin = touch.access->layout.begin();
  const Address end = touch.access->layout.end();
  cut(begin);
  cut(end);
  const auto last = cells_.lower_bound(end);
  for (auto cell = cells_.lower_bound(begin); cell != last; ++cell) {
    replace_older(cell->second.reads, touch);
  }
}

void ShadowMemory::add_write(const Touch& touch) {
  const Address begin = touch.access->layout.begin();
  const Address end = touch.access->layout.end();
  if (touch.whole()) {
    reset(begin, end, MemoryState::kWritten).writes.push_back(touch);
    return;
  }
  cut(begin);
  cut(end);
  const auto last = cells_.lower_bound(end);
  for (auto cell = cells_.lower_bound(begin); cell != last; ++cell) {
    replace_older(cell->second.writes, touch);
    cell->second.state = MemoryState::kWritten;
  }
}

ShadowMemory::Cells::const_iterator ShadowMemory::first_reaching(Address begin) const {
  auto cell = cells_.upper_bound(begin);
  if (cell != cells_.begin() && std::prev(cell)->second.end > begin) --cell;
  return cell;
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
