// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Two fixed bounds, as fractions of the device.

#include <offstage/base/config.hpp>
#include <offstage/device/telemetry_figures.hpp>
#include <offstage/retention/retention_bounds.hpp>
#include <offstage/retention/retention_policy.hpp>
#include <offstage/retention/retention_state.hpp>

#include <cstdint>
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
    require_fraction("fixed retention", "max_cached_fraction", bounds.max_cached_fraction);
    require_fraction("fixed retention", "min_free_fraction", bounds.min_free_fraction);
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "fixed"; }
  [[nodiscard]] const FixedRetentionBounds& bounds() const noexcept { return bounds_; }

  [[nodiscard]] RetentionVerdict decide(const MemoryFigures& figures,
                                        const RetentionState& /*state*/) const override {
    const std::int64_t total = figures.device.total;
    return verdict_within(figures, truncated_product(total, bounds_.max_cached_fraction),
                          truncated_product(total, bounds_.min_free_fraction));
  }

 private:
  FixedRetentionBounds bounds_;
};

OFFSTAGE_NAMESPACE_END
