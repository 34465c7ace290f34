// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Two fixed bounds, as fractions of the device.

#include <offstage/base/config.hpp>
#include <offstage/base/error.hpp>
#include <offstage/device/telemetry_figures.hpp>
#include <offstage/retention/retention_policy.hpp>

#include <cstdint>
#include <sstream>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// The bounds of a FixedRetention, as fractions of the device's total bytes, each in [0, 1].
struct FixedRetentionBounds {
  double max_cached_fraction = 0.25;  ///< The cache may hold this much.
  double min_free_fraction = 0.05;    ///< The device must have this much free.
};

/// Releases if more than `floor(total * max_cached_fraction)` bytes are cached, or if fewer than
/// `floor(total * min_free_fraction)` bytes are free; equality keeps. If both hold, the reason is
/// `kCachedOverBound`. The bound of a verdict is the cached one, except with `kLowFree`.
///
/// With the default, a component larger than a quarter of the device releases at every offload.
class FixedRetention final : public RetentionPolicy {
 public:
  /// @throws InvalidArgument naming the field and its value if a fraction is NaN or outside [0, 1].
  explicit FixedRetention(FixedRetentionBounds bounds = {}) : bounds_(bounds) {
    require_fraction("max_cached_fraction", bounds.max_cached_fraction);
    require_fraction("min_free_fraction", bounds.min_free_fraction);
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "fixed"; }
  [[nodiscard]] const FixedRetentionBounds& bounds() const noexcept { return bounds_; }

  [[nodiscard]] RetentionVerdict decide(const MemoryFigures& figures) const override {
    const std::int64_t max_cached = part_of(figures.device.total, bounds_.max_cached_fraction);
    const std::int64_t min_free = part_of(figures.device.total, bounds_.min_free_fraction);
    if (figures.cached() > max_cached) {
      return {.release = true, .reason = RetentionReason::kCachedOverBound, .bound = max_cached};
    }
    if (figures.device.free < min_free) {
      return {.release = true, .reason = RetentionReason::kLowFree, .bound = min_free};
    }
    return {.release = false, .reason = RetentionReason::kWithinBounds, .bound = max_cached};
  }

 private:
  // The product in double precision, truncated. Exact totals: see kMaxTotalBytes.
  static std::int64_t part_of(std::int64_t total, double fraction) noexcept {
    return static_cast<std::int64_t>(static_cast<double>(total) * fraction);
  }

  static void require_fraction(const char* field, double value) {
    // Written so that NaN fails.
    if (!(value >= 0.0 && value <= 1.0)) {
      std::ostringstream message;  // Not std::to_string, which prints -1e-9 as "-0.000000".
      message << "fixed retention: " << field << " must be in [0, 1], got " << value;
      throw InvalidArgument(message.str());
    }
  }

  FixedRetentionBounds bounds_;
};

OFFSTAGE_NAMESPACE_END
