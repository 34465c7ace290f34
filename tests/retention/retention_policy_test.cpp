// SPDX-License-Identifier: Apache-2.0
#include <offstage/retention/retention_policy.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace offstage {
namespace {

TEST(RetentionPolicyTest, EveryReasonHasItsOwnStableSpelling) {
  std::set<std::string_view> spellings;
  for (int reason = 0; reason < kRetentionReasons; ++reason) {
    spellings.insert(to_string(static_cast<RetentionReason>(reason)));
  }
  EXPECT_EQ(spellings, (std::set<std::string_view>{"within_bounds", "cached_over_bound", "low_free",
                                                   "telemetry_failed", "forced", "policy_retains",
                                                   "policy_releases"}));
}

TEST(RetentionPolicyTest, NeverReleasesWithoutFigures) {
  const NeverRetention never;
  EXPECT_EQ(never.name(), "never");
  EXPECT_FALSE(never.needs_figures());
  EXPECT_TRUE(never.decide({}).release);
  EXPECT_EQ(never.decide({}).reason, RetentionReason::kPolicyReleases);
}

TEST(RetentionPolicyTest, AlwaysKeepsWithoutFigures) {
  const AlwaysRetention always;
  EXPECT_EQ(always.name(), "always");
  EXPECT_FALSE(always.needs_figures());
  const MemoryFigures full{.allocator = {.reserved = 100, .allocated = 0},
                           .device = {.free = 0, .total = 100}};
  EXPECT_FALSE(always.decide(full).release);
  EXPECT_EQ(always.decide(full).reason, RetentionReason::kPolicyRetains);
}

}  // namespace
}  // namespace offstage
