// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What the stagers of a process have pinned together.

#include <offstage/base/config.hpp>
#include <offstage/device/pinned_budget.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN

/// Counts pinned host memory, so that what one stager pins counts for the next, and two that are
/// built at the same time never get the same bytes.
///
/// Pinned memory is a matter of the machine and not of one device: unless told otherwise all
/// `DeviceContext`s of a process share one ledger. Counted is what masters take, in whole pages or
/// whatever else their provider rounds to; adopted memory and memory of others is not.
///
/// @par Threads
/// All members may be called concurrently.
class PinnedLedger : public std::enable_shared_from_this<PinnedLedger> {
 public:
  /// How much more may be pinned now.
  struct Allowance {
    std::int64_t bytes = 0;  ///< Never negative; the largest number there is without a bound.
    std::string reason;      ///< For people: what the bound is and how much of it is used.
  };

  /// Bytes that were set aside and are not pinned yet. Those that never are go back to the ledger
  /// with this object.
  class Promise {
   public:
    Promise() = default;
    Promise(Promise&& other) noexcept;
    Promise& operator=(Promise&& other) noexcept;
    Promise(const Promise&) = delete;
    Promise& operator=(const Promise&) = delete;
    ~Promise();

    [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

    /// `bytes` of these are pinned now: they move to the ledger's `pinned_bytes()`.
    /// @pre `bytes` is at most `bytes()`.
    void settle(std::int64_t bytes) noexcept;

   private:
    friend class PinnedLedger;
    Promise(std::shared_ptr<PinnedLedger> ledger, std::int64_t bytes) noexcept;

    std::shared_ptr<PinnedLedger> ledger_;
    std::int64_t bytes_ = 0;
  };

  /// The one that contexts use unless they are given another.
  [[nodiscard]] static const std::shared_ptr<PinnedLedger>& of_process();

  /// Asks `choose` how much of what may be pinned now is wanted, and sets that aside: one step for
  /// all threads.
  /// @param options  For an automatic budget: what to add to its options (released bytes, and
  ///                 whether RLIMIT_MEMLOCK counts); its reserve and root are those of the budget.
  /// @param choose   Returns from 0 up to the allowance. May throw; then nothing is set aside.
  /// @throws HostMemoryError if an automatic budget cannot be read.
  [[nodiscard]] Promise set_aside(const PinnedBudget& budget, const HostBudgetOptions& options,
                                  const std::function<std::int64_t(const Allowance&)>& choose);

  /// `bytes` that were settled are pinned no more.
  void unpinned(std::int64_t bytes) noexcept;

  /// Host memory that is pinned now, in bytes.
  [[nodiscard]] std::int64_t pinned_bytes() const noexcept;
  /// Host memory that is set aside and not pinned yet, in bytes.
  [[nodiscard]] std::int64_t promised_bytes() const noexcept;

 private:
  [[nodiscard]] Allowance allowance(const PinnedBudget& budget,
                                    const HostBudgetOptions& options) const;

  mutable std::mutex mutex_;
  std::int64_t pinned_ = 0;    // Guarded by mutex_.
  std::int64_t promised_ = 0;  // Guarded by mutex_.
};

OFFSTAGE_NAMESPACE_END
