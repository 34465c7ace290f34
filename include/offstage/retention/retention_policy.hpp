// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The question whether an allocator may keep its cache, and the form of the answer.

#include <offstage/base/config.hpp>
#include <offstage/device/telemetry_figures.hpp>
#include <offstage/retention/retention_reason.hpp>
#include <offstage/retention/retention_state.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// A policy's answer.
struct RetentionVerdict {
  bool release = false;
  RetentionReason reason = RetentionReason::kWithinBounds;
  std::int64_t bound = 0;  ///< The bound that decided, in bytes; 0 where there is none.
};

/// Decides from a device's figures, and from what the cache has seen before, whether the
/// allocator's cache is released. Both functions are pure: all that changes is in RetentionState,
/// which the cache keeps.
///
/// @par Threads
/// Immutable: one object may serve several caches. The functions are called with locks of the cache
/// held, and must not call back into it.
///
/// @par Errors
/// What `decide` or `next_peak` throws leaves through the caller of the cache; nothing was released
/// then, and the state is as before.
class RetentionPolicy {
 public:
  RetentionPolicy() = default;
  RetentionPolicy(const RetentionPolicy&) = delete;
  RetentionPolicy& operator=(const RetentionPolicy&) = delete;
  RetentionPolicy(RetentionPolicy&&) = delete;
  RetentionPolicy& operator=(RetentionPolicy&&) = delete;
  virtual ~RetentionPolicy() = default;

  /// Short name for reports: "fixed", "never", "always", ...
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// False if the answer does not depend on the figures. They are then not read, `decide` is
  /// handed zeros, and a device without telemetry can be used.
  [[nodiscard]] virtual bool needs_figures() const noexcept { return true; }

  /// @param figures  Checked figures.
  /// @param state    As earlier decisions left it.
  [[nodiscard]] virtual RetentionVerdict decide(const MemoryFigures& figures,
                                                const RetentionState& state) const = 0;

  /// The peak after a decision that had figures, whichever way it went. By default the largest that
  /// was cached at any decision.
  /// @returns bytes; a negative number counts as 0.
  [[nodiscard]] virtual std::int64_t next_peak(const MemoryFigures& figures,
                                               const RetentionState& state) const {
    return std::max(state.observed_peak, figures.cached());
  }
};

/// Keeps everything, whatever the figures: for a device that the program has to itself.
class AlwaysRetention final : public RetentionPolicy {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "always"; }
  [[nodiscard]] bool needs_figures() const noexcept override { return false; }
  [[nodiscard]] RetentionVerdict decide(const MemoryFigures& /*figures*/,
                                        const RetentionState& /*state*/) const override {
    return {.release = false, .reason = RetentionReason::kPolicyRetains, .bound = 0};
  }
};

/// Keeps nothing: releases at every decision.
class NeverRetention final : public RetentionPolicy {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "never"; }
  [[nodiscard]] bool needs_figures() const noexcept override { return false; }
  [[nodiscard]] RetentionVerdict decide(const MemoryFigures& /*figures*/,
                                        const RetentionState& /*state*/) const override {
    return {.release = true, .reason = RetentionReason::kPolicyReleases, .bound = 0};
  }
};

OFFSTAGE_NAMESPACE_END
