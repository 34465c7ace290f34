// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// A bound that follows what was found cached.

#include <offstage/base/config.hpp>
#include <offstage/base/error.hpp>
#include <offstage/base/number_text.hpp>
#include <offstage/device/telemetry_figures.hpp>
#include <offstage/retention/retention_bounds.hpp>
#include <offstage/retention/retention_policy.hpp>
#include <offstage/retention/retention_state.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// How a LearnedRetention learns.
struct LearnedRetentionOptions {
  double growth = 1.25;               ///< The cache may hold this many peaks; at least 1, finite.
  double max_cached_fraction = 0.25;  ///< And never more than this fraction of the device.
  double min_free_fraction = 0.05;    ///< The device must have this much free.
  /// What the peak loses at each decision, in [0, 1]. 0: one spike raises the bound for as long as
  /// a component is attached.
  double peak_decay = 0.0;
};

/// Keeps as much as the pipeline has shown to reuse, and a little more: releases if more than
/// `min(floor(peak * growth), floor(total * max_cached_fraction))` bytes are cached, or if fewer
/// than `floor(total * min_free_fraction)` are free; equality keeps. The peak is what was cached
/// most at an earlier decision. A verdict is made of the old peak, and then the peak follows: so
/// one release is paid for each growth beyond `growth`, and the first cached byte is released.
///
/// A pipeline whose peak is above the fraction of the device releases every time.
class LearnedRetention final : public RetentionPolicy {
 public:
  /// @throws InvalidArgument naming the field and its value: a fraction or the decay that is NaN or
  ///         outside [0, 1], a growth that is not finite or less than 1.
  explicit LearnedRetention(LearnedRetentionOptions options = {}) : options_(options) {
    require_fraction("learned retention", "max_cached_fraction", options.max_cached_fraction);
    require_fraction("learned retention", "min_free_fraction", options.min_free_fraction);
    require_fraction("learned retention", "peak_decay", options.peak_decay);
    // Written so that NaN fails.
    if (!(options.growth >= 1.0 && options.growth <= std::numeric_limits<double>::max())) {
      throw InvalidArgument("learned retention: growth must be finite and at least 1, got " +
                            number_text(options.growth));
    }
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "learned"; }
  [[nodiscard]] const LearnedRetentionOptions& options() const noexcept { return options_; }

  [[nodiscard]] RetentionVerdict decide(const MemoryFigures& figures,
                                        const RetentionState& state) const override {
    const std::int64_t total = figures.device.total;
    const std::int64_t budget = truncated_product(state.observed_peak, options_.growth);
    const std::int64_t cap = truncated_product(total, options_.max_cached_fraction);
    return verdict_within(figures, std::min(budget, cap),
                          truncated_product(total, options_.min_free_fraction));
  }

  /// `max(cached, peak)`, or with a decay `max(cached, floor(peak * (1 - peak_decay)))`. The decay
  /// is by a factor, so that a spike of any height is forgotten after a number of decisions that
  /// hardly depends on it; and it starts from what is cached now, so that a steady pipeline keeps
  /// its peak.
  [[nodiscard]] std::int64_t next_peak(const MemoryFigures& figures,
                                       const RetentionState& state) const override {
    if (options_.peak_decay == 0.0) return RetentionPolicy::next_peak(figures, state);
    return std::max(figures.cached(),
                    truncated_product(state.observed_peak, 1.0 - options_.peak_decay));
  }

 private:
  LearnedRetentionOptions options_;
};

OFFSTAGE_NAMESPACE_END
