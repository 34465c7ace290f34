// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The arithmetic that policies with bounds share.

#include <offstage/base/config.hpp>
#include <offstage/base/error.hpp>
#include <offstage/base/number_text.hpp>
#include <offstage/device/telemetry_figures.hpp>
#include <offstage/retention/retention_policy.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// The product in double precision, truncated: what a fraction of a byte count is everywhere in the
/// library. Exact for byte counts up to `kMaxTotalBytes`; a product that no int64 holds is the
/// largest int64.
/// @pre Neither is negative, and `factor` is not NaN.
[[nodiscard]] inline std::int64_t truncated_product(std::int64_t bytes, double factor) noexcept {
  constexpr double kBeyond = 9223372036854775808.0;  // 2^63, the first that does not fit.
  const double product = static_cast<double>(bytes) * factor;
  if (product >= kBeyond) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(product);
}

/// @param policy  For the message: "fixed retention".
/// @throws InvalidArgument naming the field and its value if that is NaN or outside [0, 1].
inline void require_fraction(std::string_view policy, std::string_view field, double value) {
  // Written so that NaN fails.
  if (value >= 0.0 && value <= 1.0) return;
  throw InvalidArgument(std::string(policy) + ": " + std::string(field) +
                        " must be in [0, 1], got " + number_text(value));
}

/// Releases if more than `max_cached` bytes are cached, or if fewer than `min_free` are free;
/// equality keeps. If both hold, the reason is `kCachedOverBound`. The bound of the verdict is the
/// cached one, except with `kLowFree`.
[[nodiscard]] inline RetentionVerdict verdict_within(const MemoryFigures& figures,
                                                     std::int64_t max_cached,
                                                     std::int64_t min_free) noexcept {
  if (figures.cached() > max_cached) {
    return {.release = true, .reason = RetentionReason::kCachedOverBound, .bound = max_cached};
  }
  if (figures.device.free < min_free) {
    return {.release = true, .reason = RetentionReason::kLowFree, .bound = min_free};
  }
  return {.release = false, .reason = RetentionReason::kWithinBounds, .bound = max_cached};
}

OFFSTAGE_NAMESPACE_END
