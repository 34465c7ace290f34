// SPDX-License-Identifier: Apache-2.0
#include "fake_file_tree.hpp"

#include <offstage/base/error.hpp>
#include <offstage/device/pinned_ledger.hpp>

#include <gmock/gmock.h>

#include <limits>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace offstage {
namespace {

using ::testing::HasSubstr;

class PinnedLedgerTest : public ::testing::Test {
 protected:
  /// Sets aside as much of `wanted` as is allowed; notes the allowance.
  PinnedLedger::Promise take(const PinnedBudget& budget, std::int64_t wanted,
                             const HostBudgetOptions& options = {}) {
    return ledger->set_aside(budget, options, [&](const PinnedLedger::Allowance& allowance) {
      last = allowance;
      return std::min(wanted, allowance.bytes);
    });
  }

  std::shared_ptr<PinnedLedger> ledger = std::make_shared<PinnedLedger>();
  PinnedLedger::Allowance last;
};

TEST_F(PinnedLedgerTest, CountsWhatIsSetAsideAndWhatIsPinned) {
  PinnedLedger::Promise promise = take({}, 100);
  EXPECT_EQ(ledger->promised_bytes(), 100);
  EXPECT_EQ(ledger->pinned_bytes(), 0);
  promise.settle(60);
  EXPECT_EQ(ledger->promised_bytes(), 40);
  EXPECT_EQ(ledger->pinned_bytes(), 60);
  EXPECT_EQ(promise.bytes(), 40);
  promise = {};
  EXPECT_EQ(ledger->promised_bytes(), 0) << "what was not pinned goes back";
  EXPECT_EQ(ledger->pinned_bytes(), 60);
  ledger->unpinned(60);
  EXPECT_EQ(ledger->pinned_bytes(), 0);
}

TEST_F(PinnedLedgerTest, WithoutABudgetEverythingIsAllowed) {
  static_cast<void>(take({}, 1));
  EXPECT_EQ(last.bytes, std::numeric_limits<std::int64_t>::max());
}

TEST_F(PinnedLedgerTest, WhatOneHasOrIsPromisedIsNotThereForTheNext) {
  const PinnedBudget budget = PinnedBudget::of_bytes(100);
  PinnedLedger::Promise first = take(budget, 70);
  first.settle(30);
  const PinnedLedger::Promise second = take(budget, 70);
  EXPECT_EQ(second.bytes(), 30);
  EXPECT_EQ(last.reason, "a budget of 100 bytes, 70 of them in use");
  EXPECT_EQ(take(budget, 1).bytes(), 0);
  EXPECT_EQ(take(PinnedBudget::of_bytes(50), 1).bytes(), 0) << "never negative";
  EXPECT_EQ(last.bytes, 0);
}

TEST_F(PinnedLedgerTest, APromiseThatMovesIsCountedOnce) {
  PinnedLedger::Promise first = take({}, 10);
  PinnedLedger::Promise second = take({}, 20);
  second = std::move(first);
  EXPECT_EQ(second.bytes(), 10);
  {
    const PinnedLedger::Promise third = std::move(second);
    EXPECT_EQ(third.bytes(), 10);
  }
  first = {};
  EXPECT_EQ(ledger->promised_bytes(), 0);
}

TEST_F(PinnedLedgerTest, AChoiceThatThrowsSetsNothingAside) {
  EXPECT_THROW(static_cast<void>(ledger->set_aside(
                   {}, {}, [](const auto&) -> std::int64_t { throw std::runtime_error("short"); })),
               std::runtime_error);
  EXPECT_EQ(ledger->promised_bytes(), 0);
}

// case C20: an automatic budget knows what is pinned from the system, and what is promised from
// here.
TEST_F(PinnedLedgerTest, AnAutomaticBudgetIsWhatTheSystemHasLessWhatIsPromised) {
  const FakeFileTree files;
  const PinnedBudget budget =
      PinnedBudget::automatic({.reserve_bytes = 2 * kGiB, .root = files.root()});
  PinnedLedger::Promise first = take(budget, 5 * kGiB);
  EXPECT_EQ(last.bytes, 18 * kGiB);
  EXPECT_EQ(last.reason, "MemAvailable of /proc/meminfo less a reserve of 2147483648 bytes");
  static_cast<void>(take(budget, 0));
  EXPECT_EQ(last.bytes, 13 * kGiB);
  first.settle(5 * kGiB);
  files.set_available(15 * kGiB);
  static_cast<void>(take(budget, 0));
  EXPECT_EQ(last.bytes, 13 * kGiB) << "not counted twice";
}

TEST_F(PinnedLedgerTest, AnAutomaticBudgetIsToldOfReleasedMemoryAndOfTheLockLimit) {
  const FakeFileTree files;
  files.set_lock_limit(std::to_string(8 * kMiB), 0);
  const PinnedBudget budget = PinnedBudget::automatic({.reserve_bytes = 0, .root = files.root()});
  static_cast<void>(take(budget, 0, {.released_bytes = kGiB}));
  EXPECT_EQ(last.bytes, 21 * kGiB);
  static_cast<void>(take(budget, 0, {.released_bytes = kGiB, .bound_by_memlock = true}));
  EXPECT_EQ(last.bytes, 8 * kMiB);
  EXPECT_THAT(last.reason, HasSubstr("RLIMIT_MEMLOCK"));
  static_cast<void>(take(PinnedBudget::of_bytes(5), 0, {.bound_by_memlock = true}));
  EXPECT_EQ(last.bytes, 5) << "a number is a number";
}

TEST_F(PinnedLedgerTest, ABudgetThatCannotBeReadIsAnError) {
  EXPECT_THROW(static_cast<void>(take(PinnedBudget::automatic({.root = "/nowhere"}), 1)),
               HostMemoryError);
  EXPECT_EQ(ledger->promised_bytes(), 0);
}

TEST_F(PinnedLedgerTest, ThreadsNeverGetMoreThanTheBudgetTogether) {
  const PinnedBudget budget = PinnedBudget::of_bytes(1000);
  std::vector<std::int64_t> got(4);
  std::vector<std::thread> threads;
  for (std::int64_t& sum : got) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        PinnedLedger::Promise promise = ledger->set_aside(budget, {}, [](const auto& allowance) {
          return std::min<std::int64_t>(3, allowance.bytes);
        });
        sum += promise.bytes();
        promise.settle(promise.bytes());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got[0] + got[1] + got[2] + got[3], 1000);
  EXPECT_EQ(ledger->pinned_bytes(), 1000);
}

TEST_F(PinnedLedgerTest, AProcessHasOneOfItsOwn) {
  EXPECT_EQ(PinnedLedger::of_process(), PinnedLedger::of_process());
}

}  // namespace
}  // namespace offstage
