// SPDX-License-Identifier: Apache-2.0
#include <offstage/retention/retention_decision.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace offstage {
namespace {

TEST(RetentionDecisionTest, TheTableIsAlignedAndSaysWhatWasNotRead) {
  const std::vector<RetentionDecision> decisions = {
      {.reason = RetentionReason::kCachedOverBound,
       .figures = MemoryFigures{.allocator = {.reserved = 60, .allocated = 20},
                                .device = {.free = 30, .total = 100}},
       .state = {.staged_bytes = 0, .observed_peak = 30},
       .bound = 25,
       .releasable = 35,
       .duration = std::chrono::nanoseconds(1234567),
       .released = true},
      {.reason = RetentionReason::kForced, .duration = std::chrono::nanoseconds(950)},
  };
  EXPECT_EQ(to_text(decisions),
            "reason             cached  bound  releasable  free  total  peak      us  released\n"
            "cached_over_bound      40     25          35    30    100    30  1234.6       yes\n"
            "forced                  -      0           -     -      -     0     0.9        no\n");
}

TEST(RetentionDecisionTest, ATableOfNothingIsItsHeadings) {
  EXPECT_EQ(to_text({}), "reason  cached  bound  releasable  free  total  peak  us  released\n");
}

}  // namespace
}  // namespace offstage
