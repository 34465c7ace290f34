// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Arithmetic on byte counts. All byte counts of the library are `std::int64_t`.

#include <offstage/base/config.hpp>

#include <cstdint>

OFFSTAGE_NAMESPACE_BEGIN

inline constexpr std::int64_t kKiB = std::int64_t{1} << 10;
inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;
inline constexpr std::int64_t kGiB = std::int64_t{1} << 30;

/// True for 1, 2, 4, 8, ...
[[nodiscard]] constexpr bool is_power_of_two(std::int64_t value) noexcept {
  return value > 0 && (value & (value - 1)) == 0;
}

/// `bytes` rounded up to a multiple of `alignment`.
/// @pre `alignment` is a power of two, `bytes` is not negative and the result fits.
[[nodiscard]] constexpr std::int64_t align_up(std::int64_t bytes, std::int64_t alignment) noexcept {
  return (bytes + alignment - 1) & ~(alignment - 1);
}

/// `bytes` rounded down to a multiple of `alignment`.
/// @pre `alignment` is a power of two and `bytes` is not negative.
[[nodiscard]] constexpr std::int64_t align_down(std::int64_t bytes,
                                                std::int64_t alignment) noexcept {
  return bytes & ~(alignment - 1);
}

OFFSTAGE_NAMESPACE_END
