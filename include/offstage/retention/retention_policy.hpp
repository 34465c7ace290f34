// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The question whether an allocator may keep its cache, and the form of the answer.

#include <offstage/base/config.hpp>
#include <offstage/device/telemetry_figures.hpp>

#include <cstdint>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// Why a cache was kept or released.
enum class RetentionReason : std::uint8_t {
  kWithinBounds,     ///< Kept: no bound is exceeded.
  kCachedOverBound,  ///< Released: more is cached than allowed.
  kLowFree,          ///< Released: the device has less free memory than it should have.
  kTelemetryFailed,  ///< Released: a figure could not be read.
  kForced,           ///< Released: the caller said so; no figure was read.
  kPolicyRetains,    ///< Kept by a policy that looks at no bound.
  kPolicyReleases,   ///< Released by a policy that looks at no bound.
};
inline constexpr int kRetentionReasons = 7;

/// The stable spelling of a reason: "within_bounds", ...
[[nodiscard]] constexpr std::string_view to_string(RetentionReason reason) noexcept {
  switch (reason) {
    case RetentionReason::kWithinBounds:
      return "within_bounds";
    case RetentionReason::kCachedOverBound:
      return "cached_over_bound";
    case RetentionReason::kLowFree:
      return "low_free";
    case RetentionReason::kTelemetryFailed:
      return "telemetry_failed";
    case RetentionReason::kForced:
      return "forced";
    case RetentionReason::kPolicyRetains:
      return "policy_retains";
    case RetentionReason::kPolicyReleases:
      return "policy_releases";
  }
  return "unknown";
}

/// A policy's answer.
struct RetentionVerdict {
  bool release = false;
  RetentionReason reason = RetentionReason::kWithinBounds;
  std::int64_t bound = 0;  ///< The bound that decided, in bytes; 0 where there is none.
};

/// Decides from a device's figures whether its allocator's cache is released.
///
/// @par Threads
/// Immutable: one object may serve several caches.
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

  /// A pure function of checked figures. What it throws leaves the decision with nothing released.
  [[nodiscard]] virtual RetentionVerdict decide(const MemoryFigures& figures) const = 0;
};

/// Keeps everything, whatever the figures: for a device that the program has to itself.
class AlwaysRetention final : public RetentionPolicy {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "always"; }
  [[nodiscard]] bool needs_figures() const noexcept override { return false; }
  [[nodiscard]] RetentionVerdict decide(const MemoryFigures& /*figures*/) const override {
    return {.release = false, .reason = RetentionReason::kPolicyRetains, .bound = 0};
  }
};

/// Keeps nothing: releases at every decision.
class NeverRetention final : public RetentionPolicy {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "never"; }
  [[nodiscard]] bool needs_figures() const noexcept override { return false; }
  [[nodiscard]] RetentionVerdict decide(const MemoryFigures& /*figures*/) const override {
    return {.release = true, .reason = RetentionReason::kPolicyReleases, .bound = 0};
  }
};

OFFSTAGE_NAMESPACE_END
