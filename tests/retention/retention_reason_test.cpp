// SPDX-License-Identifier: Apache-2.0
#include <offstage/retention/retention_reason.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace offstage {
namespace {

TEST(RetentionReasonTest, EveryReasonHasItsOwnStableSpelling) {
  std::set<std::string_view> spellings;
  for (int reason = 0; reason < kRetentionReasons; ++reason) {
    spellings.insert(to_string(static_cast<RetentionReason>(reason)));
  }
  EXPECT_EQ(spellings, (std::set<std::string_view>{"within_bounds", "cached_over_bound", "low_free",
                                                   "telemetry_failed", "forced", "policy_retains",
                                                   "policy_releases", "nothing_to_release"}));
}

}  // namespace
}  // namespace offstage
