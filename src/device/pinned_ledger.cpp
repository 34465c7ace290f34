// SPDX-License-Identifier: Apache-2.0
#include <offstage/device/pinned_ledger.hpp>

#include <algorithm>
#include <limits>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

PinnedLedger::Promise::Promise(std::shared_ptr<PinnedLedger> ledger, std::int64_t bytes) noexcept
    : ledger_(std::move(ledger)), bytes_(bytes) {}

PinnedLedger::Promise::Promise(Promise&& other) noexcept
    : ledger_(std::move(other.ledger_)), bytes_(std::exchange(other.bytes_, 0)) {}

PinnedLedger::Promise& PinnedLedger::Promise::operator=(Promise&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedLedger::Promise::~Promise() {
  if (ledger_ == nullptr) return;
  const std::lock_guard lock(ledger_->mutex_);
  ledger_->promised_ -= bytes_;
}

void PinnedLedger::Promise::settle(std::int64_t bytes) noexcept {
  if (ledger_ == nullptr) return;
  const std::lock_guard lock(ledger_->mutex_);
  ledger_->promised_ -= bytes;
  ledger_->pinned_ += bytes;
  bytes_ -= bytes;
}

const std::shared_ptr<PinnedLedger>& PinnedLedger::of_process() {
  // Leaked: masters may outlive whatever else is static.
  static const auto* const ledger =
      new std::shared_ptr<PinnedLedger>(std::make_shared<PinnedLedger>());
  return *ledger;
}

PinnedLedger::Promise PinnedLedger::set_aside(
    const PinnedBudget& budget, const HostBudgetOptions& options,
    const std::function<std::int64_t(const Allowance&)>& choose) {
  Promise promise(shared_from_this(), 0);
  const std::lock_guard lock(mutex_);
  const std::int64_t bytes = choose(allowance(budget, options));
  promised_ += bytes;
  promise.bytes_ = bytes;
  return promise;
}

PinnedLedger::Allowance PinnedLedger::allowance(const PinnedBudget& budget,
                                                const HostBudgetOptions& options) const {
  if (const std::int64_t* const bytes = budget.bytes()) {
    const std::int64_t used = pinned_ + promised_;
    return {std::max<std::int64_t>(0, *bytes - used), "a budget of " + std::to_string(*bytes) +
                                                          " bytes, " + std::to_string(used) +
                                                          " of them in use"};
  }
  if (const HostBudgetOptions* const own = budget.options()) {
    HostBudgetOptions merged = *own;
    merged.released_bytes += options.released_bytes;
    merged.bound_by_memlock = own->bound_by_memlock || options.bound_by_memlock;
    const HostBudget found = read_host_budget(merged);
    // What is pinned the system counts itself; what is promised it does not know yet.
    return {
        std::max<std::int64_t>(0, found.bytes - promised_),
        found.decided_by + " less a reserve of " + std::to_string(merged.reserve_bytes) + " bytes"};
  }
  return {std::numeric_limits<std::int64_t>::max(), "no budget"};
}

void PinnedLedger::unpinned(std::int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  pinned_ -= bytes;
}

std::int64_t PinnedLedger::pinned_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return pinned_;
}

std::int64_t PinnedLedger::promised_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return promised_;
}

OFFSTAGE_NAMESPACE_END
