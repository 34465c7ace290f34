// SPDX-License-Identifier: Apache-2.0
#include "retention_ledger.hpp"

#include <offstage/base/error.hpp>

#include <algorithm>
#include <limits>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

RetentionVerdict verdict_of(const RetentionPolicy& policy, const MemoryFigures& figures,
                            const RetentionState& state) {
  const RetentionVerdict verdict = policy.decide(figures, state);
  const auto reason = static_cast<int>(verdict.reason);
  if (reason < kRetentionReasons) return verdict;
  throw InvalidArgument("bounded allocator cache: policy '" + std::string(policy.name()) +
                        "' gave the unknown reason " + std::to_string(reason));
}

void RetentionLedger::change(std::int64_t from, std::int64_t to) {
  if (to < 0) {
    throw InvalidArgument("bounded allocator cache: staged bytes must not be negative, got " +
                          std::to_string(to));
  }
  const std::lock_guard lock(mutex_);
  const std::int64_t others = state_.staged_bytes - from;
  if (to > std::numeric_limits<std::int64_t>::max() - others) {
    throw InvalidArgument(
        "bounded allocator cache: the sum of all staged bytes exceeds an int64: " +
        std::to_string(others) + " and " + std::to_string(to));
  }
  set_staged(others + to);
}

void RetentionLedger::remove(std::int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  set_staged(state_.staged_bytes - bytes);
}

RetentionState RetentionLedger::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

RetentionLedger::Step RetentionLedger::decide(const RetentionPolicy& policy,
                                              const MemoryFigures& figures) {
  const std::lock_guard lock(mutex_);
  const Step step{verdict_of(policy, figures, state_), state_};
  state_.observed_peak = std::max<std::int64_t>(0, policy.next_peak(figures, state_));
  return step;
}

// Reaching 0 resets the peak; being at 0 does not, or a cache that nothing is attached to could
// never learn.
void RetentionLedger::set_staged(std::int64_t bytes) noexcept {
  if (bytes == 0 && state_.staged_bytes > 0) state_.observed_peak = 0;
  state_.staged_bytes = bytes;
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
