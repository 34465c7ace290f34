// SPDX-License-Identifier: Apache-2.0
#include "access.hpp"

#include <algorithm>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

std::int64_t floor_div(std::int64_t dividend, std::int64_t divisor) {
  return dividend / divisor - (dividend % divisor < 0 ? 1 : 0);
}

}  // namespace

ByteLayout::ByteLayout(Address begin, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                       std::int64_t item_bytes)
    : begin_(begin), end_(begin), run_bytes_(item_bytes) {
  c10::SmallVector<Dimension, 6> dimensions;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return;
    if (sizes[i] > 1 && strides[i] != 0) dimensions.push_back({sizes[i], strides[i] * item_bytes});
  }
  std::sort(dimensions.begin(), dimensions.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  std::int64_t extent = item_bytes;
  for (const Dimension& dimension : dimensions) {
    const std::int64_t grown = extent + dimension.stride * (dimension.count - 1);
    if (dimension.stride <= extent && outer_.empty()) {
      run_bytes_ = grown;  // Runs that touch or overlap are one run.
    } else {
      extents_.push_back(extent);
      outer_.push_back(dimension);
      run_count_ *= dimension.count;
    }
    extent = grown;
  }
  extents_.push_back(extent);
  end_ = begin_ + static_cast<Address>(extent);
}

bool ByteLayout::touches(Address begin, Address end) const {
  if (empty() || begin >= end) return false;
  return touches(begin_, begin, end, outer_.size());
}

bool ByteLayout::touches(Address from, Address begin, Address end, std::size_t depth) const {
  const Address last = from + static_cast<Address>(extents_[depth]);
  if (end <= from || last <= begin) return false;
  if (depth == 0 || (begin <= from && last <= end)) return true;
  const Dimension& outer = outer_[depth - 1];
  const std::int64_t inner = extents_[depth - 1];
  // Copies of the inner part that can reach the range: [i * stride, i * stride + inner).
  const std::int64_t low = begin > from ? static_cast<std::int64_t>(begin - from) : 0;
  const auto high = static_cast<std::int64_t>(end - from);
  const std::int64_t first = low < inner ? 0 : (low - inner) / outer.stride + 1;
  const std::int64_t behind = std::min(outer.count, (high - 1) / outer.stride + 1);
  for (std::int64_t i = first; i < behind; ++i) {
    if (touches(from + static_cast<Address>(i * outer.stride), begin, end, depth - 1)) return true;
  }
  return false;
}

bool ByteLayout::overlaps(const ByteLayout& other) const {
  if (end_ <= other.begin_ || other.end_ <= begin_) return false;
  if (has_strides_of(other)) {
    return overlaps_at(other, static_cast<std::int64_t>(other.begin_ - begin_), outer_.size());
  }
  if (run_count_ > other.run_count_) return other.overlaps(*this);
  return any_run([&](Address begin, Address end) { return other.touches(begin, end); });
}

bool ByteLayout::overlaps(const ByteLayout& other, Address begin, Address end) const {
  if (run_count_ > other.run_count_) return other.overlaps(*this, begin, end);
  return any_run([&](Address from, Address to) {
    return other.touches(std::max(from, begin), std::min(to, end));
  });
}

bool ByteLayout::has_strides_of(const ByteLayout& other) const noexcept {
  return std::equal(outer_.begin(), outer_.end(), other.outer_.begin(), other.outer_.end(),
                    [](const Dimension& a, const Dimension& b) { return a.stride == b.stride; });
}

// Whether the inner `depth` dimensions, from 0 on, meet those of `other`, from `offset` on. Of two
// copies along the outermost of them only the difference of their places matters, and there are few
// differences that bring them together.
bool ByteLayout::overlaps_at(const ByteLayout& other, std::int64_t offset,
                             std::size_t depth) const {
  if (offset >= extents_[depth] || -offset >= other.extents_[depth]) return false;
  if (depth == 0) return true;
  const std::int64_t stride = outer_[depth - 1].stride;
  const std::int64_t first = floor_div(-other.extents_[depth - 1] - offset, stride) + 1;
  const std::int64_t last = floor_div(extents_[depth - 1] - offset - 1, stride);
  for (std::int64_t k = std::max(first, 1 - outer_[depth - 1].count);
       k <= std::min(last, other.outer_[depth - 1].count - 1); ++k) {
    if (overlaps_at(other, offset + k * stride, depth - 1)) return true;
  }
  return false;
}

std::size_t ByteLayout::hash() const noexcept {
  std::size_t hash = begin_;
  const auto mix = [&hash](std::size_t value) { hash = hash * 0x9e3779b97f4a7c15U + value; };
  mix(end_);
  mix(static_cast<std::size_t>(run_bytes_));
  for (const Dimension& dimension : outer_) {
    mix(static_cast<std::size_t>(dimension.count));
    mix(static_cast<std::size_t>(dimension.stride));
  }
  return hash;
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
