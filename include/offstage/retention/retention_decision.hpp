// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What a cache tells of its decisions.

#include <offstage/base/config.hpp>
#include <offstage/device/telemetry_figures.hpp>
#include <offstage/retention/retention_reason.hpp>
#include <offstage/retention/retention_state.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN

/// One decision that was taken.
struct RetentionDecision {
  RetentionReason reason = RetentionReason::kWithinBounds;
  std::optional<MemoryFigures> figures = {};  ///< Empty if they were not asked for or not readable.
  RetentionState state = {};            ///< What it was decided from; the peak is the old one.
  std::int64_t bound = 0;               ///< The bound that decided, in bytes; 0 if there is none.
  std::int64_t releasable = 0;          ///< What a release can give back; 0 without figures.
  std::chrono::nanoseconds duration{};  ///< Host time, a release included.
  bool released = false;                ///< False as well if the release was tried and failed.
};

/// How often what happened.
struct RetentionCounters {
  std::array<std::int64_t, kRetentionReasons> by_reason{};
  std::array<std::int64_t, kTelemetryKinds> telemetry_failures{};
  std::int64_t releases = 0;          ///< Releases that succeeded.
  std::int64_t release_failures = 0;  ///< Releases that threw.

  [[nodiscard]] std::int64_t decisions(RetentionReason reason) const noexcept {
    const auto index = static_cast<std::size_t>(reason);
    return index < by_reason.size() ? by_reason[index] : 0;
  }
  [[nodiscard]] std::int64_t failures(TelemetryKind kind) const noexcept {
    const auto index = static_cast<std::size_t>(kind);
    return index < telemetry_failures.size() ? telemetry_failures[index] : 0;
  }
};

/// A table for people: one line a decision, in the order given, under a line of headings. Figures
/// are bytes, the duration is in microseconds; "-" is a figure that was not read.
[[nodiscard]] std::string to_text(std::span<const RetentionDecision> decisions);

OFFSTAGE_NAMESPACE_END
