// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The state of one cache, shared with its tokens.

#include <offstage/base/config.hpp>
#include <offstage/device/telemetry_figures.hpp>
#include <offstage/retention/retention_policy.hpp>
#include <offstage/retention/retention_state.hpp>

#include <cstdint>
#include <mutex>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// What a policy says.
/// @throws InvalidArgument if its reason is none of RetentionReason; what the policy throws.
[[nodiscard]] RetentionVerdict verdict_of(const RetentionPolicy& policy,
                                          const MemoryFigures& figures,
                                          const RetentionState& state);

/// Has a lock of its own, which no device call is made under: a component that is destroyed while
/// the cache is being released does not wait for that.
class RetentionLedger {
 public:
  /// One entry changes from `from` to `to` bytes; 0 is no entry.
  /// @throws InvalidArgument if `to` is negative or the sum would exceed an int64.
  void change(std::int64_t from, std::int64_t to);

  /// Takes an entry out.
  void remove(std::int64_t bytes) noexcept;

  [[nodiscard]] RetentionState state() const;

  struct Step {
    RetentionVerdict verdict;
    RetentionState before;  ///< What it was decided from.
  };
  /// Lets the policy decide from the state as it is, and then raises the peak. One step, or a peak
  /// that is reset meanwhile would come back.
  [[nodiscard]] Step decide(const RetentionPolicy& policy, const MemoryFigures& figures);

 private:
  void set_staged(std::int64_t bytes) noexcept;

  mutable std::mutex mutex_;
  RetentionState state_;
};

}  // namespace detail
OFFSTAGE_NAMESPACE_END
