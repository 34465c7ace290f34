// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Which bytes a task reads or writes.

#include <offstage/base/config.hpp>

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

using Address = std::uintptr_t;

/// The bytes of a strided tensor: runs of `run_bytes` bytes, repeated along each dimension.
class ByteLayout {
 public:
  struct Dimension {
    std::int64_t count = 0;   ///< More than 1.
    std::int64_t stride = 0;  ///< In bytes, more than the extent of all inner dimensions.
    friend bool operator==(const Dimension&, const Dimension&) = default;
  };

  /// @param begin    Address of the first element.
  /// @param strides  In elements; negative ones do not occur in LibTorch.
  ByteLayout(Address begin, c10::IntArrayRef sizes, c10::IntArrayRef strides,
             std::int64_t item_bytes);

  [[nodiscard]] Address begin() const noexcept { return begin_; }
  /// Behind the last byte; equal to `begin()` if there is no element.
  [[nodiscard]] Address end() const noexcept { return end_; }
  [[nodiscard]] bool empty() const noexcept { return begin_ == end_; }
  /// True if there are no gaps between begin and end.
  [[nodiscard]] bool dense() const noexcept { return outer_.empty(); }
  [[nodiscard]] std::int64_t run_count() const noexcept { return run_count_; }

  /// True if one of its bytes lies in [begin, end).
  [[nodiscard]] bool touches(Address begin, Address end) const;

  /// True if the two have a byte in common. Quick if they have the same strides: two parts of one
  /// tensor.
  [[nodiscard]] bool overlaps(const ByteLayout& other) const;

  /// True if the two have a byte of [begin, end) in common.
  [[nodiscard]] bool overlaps(const ByteLayout& other, Address begin, Address end) const;

  /// Equal for equal ones.
  [[nodiscard]] std::size_t hash() const noexcept;

  /// Calls `visit(begin, end)` for each run, in no particular order, until it returns true.
  /// @returns true if a call did.
  template <class Visit>
  bool any_run(const Visit& visit) const {
    return any_run(visit, begin_, outer_.size());
  }

  friend bool operator==(const ByteLayout&, const ByteLayout&) = default;

 private:
  template <class Visit>
  bool any_run(const Visit& visit, Address from, std::size_t depth) const {
    if (depth == 0) return visit(from, from + static_cast<Address>(run_bytes_));
    const Dimension& outer = outer_[depth - 1];
    for (std::int64_t i = 0; i < outer.count; ++i) {
      if (any_run(visit, from + static_cast<Address>(i * outer.stride), depth - 1)) return true;
    }
    return false;
  }

  [[nodiscard]] bool touches(Address from, Address begin, Address end, std::size_t depth) const;
  [[nodiscard]] bool has_strides_of(const ByteLayout& other) const noexcept;
  [[nodiscard]] bool overlaps_at(const ByteLayout& other, std::int64_t offset,
                                 std::size_t depth) const;

  Address begin_ = 0;
  Address end_ = 0;
  std::int64_t run_bytes_ = 0;
  std::int64_t run_count_ = 1;
  c10::SmallVector<Dimension, 2> outer_;       // From the innermost to the outermost.
  c10::SmallVector<std::int64_t, 3> extents_;  // extents_[d]: bytes spanned by depth d.
};

/// One use of memory by a task.
struct Access {
  ByteLayout layout;
  bool reads = false;
  bool writes = false;
  bool device = true;             ///< False: pinned host memory.
  bool may_be_unwritten = false;  ///< What it reads need not have been written.
  bool reads_some = false;        ///< Values choose what it reads: some of it must be written.

  /// What a write copies: the place of the read in the same list, or -1.
  int source = -1;
  bool bytewise = false;  ///< The n-th byte there comes here as the n-th byte.
};

using Accesses = std::vector<Access>;

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
