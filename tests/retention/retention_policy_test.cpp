// SPDX-License-Identifier: Apache-2.0
#include <offstage/retention/retention_policy.hpp>

#include <gtest/gtest.h>

namespace offstage {
namespace {

TEST(RetentionPolicyTest, NeverReleasesWithoutFigures) {
  const NeverRetention never;
  EXPECT_EQ(never.name(), "never");
  EXPECT_FALSE(never.needs_figures());
  EXPECT_TRUE(never.decide({}, {}).release);
  EXPECT_EQ(never.decide({}, {}).reason, RetentionReason::kPolicyReleases);
}

TEST(RetentionPolicyTest, AlwaysKeepsWithoutFigures) {
  const AlwaysRetention always;
  EXPECT_EQ(always.name(), "always");
  EXPECT_FALSE(always.needs_figures());
  const MemoryFigures full{.allocator = {.reserved = 100, .allocated = 0},
                           .device = {.free = 0, .total = 100}};
  EXPECT_FALSE(always.decide(full, {}).release);
  EXPECT_EQ(always.decide(full, {}).reason, RetentionReason::kPolicyRetains);
}

// What every policy remembers, unless it says otherwise.
TEST(RetentionPolicyTest, ThePeakIsTheMostThatWasCached) {
  const AlwaysRetention policy;
  const MemoryFigures of_30{.allocator = {.reserved = 50, .allocated = 20},
                            .device = {.free = 40, .total = 100}};
  EXPECT_EQ(policy.next_peak(of_30, {.observed_peak = 0}), 30);
  EXPECT_EQ(policy.next_peak(of_30, {.observed_peak = 30}), 30);
  EXPECT_EQ(policy.next_peak(of_30, {.observed_peak = 31}), 31);
}

}  // namespace
}  // namespace offstage
