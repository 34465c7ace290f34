// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Which host memory is pinned.

#include <offstage/base/config.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// How a stretch of host memory lies to the registered ranges.
enum class PinnedState {
  kPageable,  ///< Its first byte is in no range.
  kPinned,    ///< It lies in one range.
  kCrosses,   ///< It begins in a range and ends beyond it; a real driver refuses to copy it.
};

/// The host ranges that are registered with the simulated devices.
class PinnedRanges {
 public:
  /// The one of the process; never destroyed.
  static PinnedRanges& get();

  /// @throws HostMemoryError if the range overlaps a registered one; InvalidArgument if it is
  /// empty.
  void add(const void* data, std::int64_t bytes);

  /// @throws HostMemoryError if exactly this range is not registered.
  void remove(const void* data, std::int64_t bytes);

  /// Removes and returns the ranges that lie in the one given: address and bytes.
  std::vector<std::pair<void*, std::int64_t>> take(const void* data, std::int64_t bytes);

  [[nodiscard]] PinnedState classify(const void* data, std::int64_t bytes) const;

  /// The parts of [data, data + bytes) that lie in ranges, in order: address and bytes.
  [[nodiscard]] std::vector<std::pair<const void*, std::int64_t>> parts(const void* data,
                                                                        std::int64_t bytes) const;

  /// The sum of all ranges.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, std::int64_t> ranges_;
  std::int64_t bytes_ = 0;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
