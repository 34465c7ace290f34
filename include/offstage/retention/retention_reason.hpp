// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Why a cache was kept or released.

#include <offstage/base/config.hpp>

#include <cstdint>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// Why a cache was kept or released.
enum class RetentionReason : std::uint8_t {
  kWithinBounds,      ///< Kept: no bound is exceeded.
  kCachedOverBound,   ///< Released: more is cached than allowed.
  kLowFree,           ///< Released: the device has less free memory than it should have.
  kTelemetryFailed,   ///< Released: a figure could not be read.
  kForced,            ///< Released: the caller said so; no figure was read.
  kPolicyRetains,     ///< Kept by a policy that looks at no bound.
  kPolicyReleases,    ///< Released by a policy that looks at no bound.
  kNothingToRelease,  ///< Kept: to be released, but a release could give nothing back.
};
inline constexpr int kRetentionReasons = 8;

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
    case RetentionReason::kNothingToRelease:
      return "nothing_to_release";
  }
  return "unknown";
}

OFFSTAGE_NAMESPACE_END
