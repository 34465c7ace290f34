// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/pinned_budget.hpp>

#include <gtest/gtest.h>

namespace offstage {
namespace {

TEST(PinnedBudgetTest, IsUnlimitedUnlessTold) {
  const PinnedBudget budget;
  EXPECT_TRUE(budget.is_unlimited());
  EXPECT_EQ(budget.bytes(), nullptr);
  EXPECT_EQ(budget.options(), nullptr);
}

TEST(PinnedBudgetTest, HoldsANumberOfBytes) {
  const PinnedBudget budget = PinnedBudget::of_bytes(4096);
  EXPECT_FALSE(budget.is_unlimited());
  ASSERT_NE(budget.bytes(), nullptr);
  EXPECT_EQ(*budget.bytes(), 4096);
  EXPECT_EQ(*PinnedBudget::of_bytes(0).bytes(), 0) << "nothing may be pinned";
  EXPECT_THROW(static_cast<void>(PinnedBudget::of_bytes(-1)), InvalidArgument);
}

TEST(PinnedBudgetTest, OrWhatToReadItFrom) {
  const PinnedBudget budget = PinnedBudget::automatic({.reserve_bytes = 7});
  EXPECT_FALSE(budget.is_unlimited());
  EXPECT_EQ(budget.bytes(), nullptr);
  ASSERT_NE(budget.options(), nullptr);
  EXPECT_EQ(budget.options()->reserve_bytes, 7);
}

}  // namespace
}  // namespace offstage
