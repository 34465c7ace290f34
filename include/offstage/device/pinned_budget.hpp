// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// How much host memory a stager may pin: as much as it needs, a number of bytes, or what is free.

#include <offstage/base/config.hpp>
#include <offstage/base/error.hpp>
#include <offstage/device/host_budget.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

OFFSTAGE_NAMESPACE_BEGIN

/// A bound of the pinned memory, decided before anything is allocated.
///
///     StagerOptions options{.pinned_budget = PinnedBudget::of_bytes(12 * kGiB)};
class PinnedBudget {
 public:
  /// No bound.
  PinnedBudget() = default;

  /// At most `bytes`, counting all that the same `PinnedLedger` knows of: two stagers with a budget
  /// of 12 GiB pin 12 GiB together.
  /// @throws InvalidArgument if `bytes` is negative.
  [[nodiscard]] static PinnedBudget of_bytes(std::int64_t bytes) {
    if (bytes < 0) {
      throw InvalidArgument("pinned budget: bytes must not be negative, got " +
                            std::to_string(bytes));
    }
    return PinnedBudget(bytes);
  }

  /// What `read_host_budget()` finds at the moment of the decision.
  [[nodiscard]] static PinnedBudget automatic(HostBudgetOptions options = {}) {
    return PinnedBudget(std::move(options));
  }

  [[nodiscard]] bool is_unlimited() const noexcept { return limit_.index() == 0; }
  /// Null unless made by `of_bytes()`.
  [[nodiscard]] const std::int64_t* bytes() const noexcept {
    return std::get_if<std::int64_t>(&limit_);
  }
  /// Null unless made by `automatic()`.
  [[nodiscard]] const HostBudgetOptions* options() const noexcept {
    return std::get_if<HostBudgetOptions>(&limit_);
  }

 private:
  using Limit = std::variant<std::monostate, std::int64_t, HostBudgetOptions>;
  explicit PinnedBudget(Limit limit) : limit_(std::move(limit)) {}

  Limit limit_;
};

OFFSTAGE_NAMESPACE_END
