// SPDX-License-Identifier: Apache-2.0
#include "pinned_ranges.hpp"

#include <offstage/base/error.hpp>

#include <algorithm>
#include <iterator>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

std::uintptr_t to_address(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data);
}

std::uintptr_t to_length(std::int64_t bytes) {
  return static_cast<std::uintptr_t>(bytes);
}

}  // namespace

PinnedRanges& PinnedRanges::get() {
  static auto* const ranges = new PinnedRanges;
  return *ranges;
}

void PinnedRanges::add(const void* data, std::int64_t bytes) {
  if (data == nullptr || bytes <= 0) {
    throw InvalidArgument("simulated accelerator: cannot pin " + std::to_string(bytes) + " bytes");
  }
  const std::uintptr_t begin = to_address(data);
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(begin);
  const bool reaches_next = next != ranges_.end() && next->first < begin + to_length(bytes);
  const bool in_previous = next != ranges_.begin() &&
                           std::prev(next)->first + to_length(std::prev(next)->second) > begin;
  if (reaches_next || in_previous) {
    throw HostMemoryError("simulated accelerator: a part of these " + std::to_string(bytes) +
                          " bytes is pinned already");
  }
  ranges_.emplace_hint(next, begin, bytes);
  bytes_ += bytes;
}

void PinnedRanges::remove(const void* data, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto range = ranges_.find(to_address(data));
  if (range == ranges_.end() || range->second != bytes) {
    throw HostMemoryError("simulated accelerator: these " + std::to_string(bytes) +
                          " bytes were not pinned as one range");
  }
  ranges_.erase(range);
  bytes_ -= bytes;
}

std::vector<std::pair<void*, std::int64_t>> PinnedRanges::take(const void* data,
                                                               std::int64_t bytes) {
  std::vector<std::pair<void*, std::int64_t>> taken;
  const std::lock_guard lock(mutex_);
  const auto last = ranges_.lower_bound(to_address(data) + to_length(bytes));
  for (auto range = ranges_.lower_bound(to_address(data)); range != last;) {
    taken.emplace_back(reinterpret_cast<void*>(range->first), range->second);
    bytes_ -= range->second;
    range = ranges_.erase(range);
  }
  return taken;
}

PinnedState PinnedRanges::classify(const void* data, std::int64_t bytes) const {
  const std::uintptr_t begin = to_address(data);
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.upper_bound(begin);
  if (next == ranges_.begin()) return PinnedState::kPageable;
  const auto& [first, length] = *std::prev(next);
  const std::uintptr_t last = first + to_length(length);
  if (begin >= last) return PinnedState::kPageable;
  return begin + to_length(bytes) <= last ? PinnedState::kPinned : PinnedState::kCrosses;
}

std::vector<std::pair<const void*, std::int64_t>> PinnedRanges::parts(const void* data,
                                                                      std::int64_t bytes) const {
  std::vector<std::pair<const void*, std::int64_t>> parts;
  if (bytes <= 0) return parts;
  const std::uintptr_t begin = to_address(data);
  const std::uintptr_t end = begin + to_length(bytes);
  const std::lock_guard lock(mutex_);
  auto range = ranges_.upper_bound(begin);
  if (range != ranges_.begin()) --range;
  for (; range != ranges_.end() && range->first < end; ++range) {
    const std::uintptr_t first = std::max(begin, range->first);
    const std::uintptr_t last = std::min(end, range->first + to_length(range->second));
    if (first >= last) continue;
    parts.emplace_back(reinterpret_cast<const void*>(first),
                       static_cast<std::int64_t>(last - first));
  }
  return parts;
}

std::int64_t PinnedRanges::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
