// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/retention/fixed_retention.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace offstage {
namespace {

MemoryFigures figures(std::int64_t reserved, std::int64_t allocated, std::int64_t free,
                      std::int64_t total = 100) {
  return {.allocator = {.reserved = reserved, .allocated = allocated},
          .device = {.free = free, .total = total}};
}

RetentionVerdict decide(const FixedRetention& policy, const MemoryFigures& seen) {
  return policy.decide(seen, {});
}

struct Case {
  const char* name;
  MemoryFigures figures;
  bool release;
  RetentionReason reason;
  std::int64_t bound;
};

// total = 100: 25 bytes may be cached, 5 must be free.
const Case kCases[] = {
    {"WellWithin", figures(10, 0, 80), false, RetentionReason::kWithinBounds, 25},
    {"CachedOver", figures(30, 0, 80), true, RetentionReason::kCachedOverBound, 25},
    {"FreeUnder", figures(10, 0, 4), true, RetentionReason::kLowFree, 5},
    {"CachedExactlyAtTheBound", figures(25, 0, 70), false, RetentionReason::kWithinBounds, 25},
    {"CachedOneOver", figures(26, 0, 70), true, RetentionReason::kCachedOverBound, 25},
    {"CachedExactlyAtTheBoundBesideTensors", figures(65, 40, 30), false,
     RetentionReason::kWithinBounds, 25},
    {"CachedOneOverBesideTensors", figures(66, 40, 30), true, RetentionReason::kCachedOverBound,
     25},
    {"FreeExactlyAtTheBound", figures(10, 0, 5), false, RetentionReason::kWithinBounds, 25},
    {"FreeOneUnder", figures(10, 0, 4), true, RetentionReason::kLowFree, 5},
    {"BothReasonsNameTheCache", figures(30, 0, 4), true, RetentionReason::kCachedOverBound, 25},
    {"AllocatedOverReservedCachesNothing", figures(10, 50, 80), false,
     RetentionReason::kWithinBounds, 25},
    {"AllocatedOverReservedMayStillBeLow", figures(10, 50, 4), true, RetentionReason::kLowFree, 5},
};

class FixedRetentionDecisionTest : public ::testing::TestWithParam<Case> {};

TEST_P(FixedRetentionDecisionTest, IsRight) {
  const RetentionVerdict verdict = decide(FixedRetention(), GetParam().figures);
  EXPECT_EQ(verdict.release, GetParam().release);
  EXPECT_EQ(verdict.reason, GetParam().reason);
  EXPECT_EQ(verdict.bound, GetParam().bound);
}

INSTANTIATE_TEST_SUITE_P(Total100, FixedRetentionDecisionTest, ::testing::ValuesIn(kCases),
                         [](const auto& instance) { return instance.param.name; });

TEST(FixedRetentionTest, BoundsAreTruncated) {
  // 25 % of 99 is 24.75, 5 % of 99 is 4.95.
  EXPECT_FALSE(decide(FixedRetention(), figures(24, 0, 50, 99)).release);
  EXPECT_TRUE(decide(FixedRetention(), figures(25, 0, 50, 99)).release);
  EXPECT_FALSE(decide(FixedRetention(), figures(0, 0, 4, 99)).release);
  EXPECT_TRUE(decide(FixedRetention(), figures(0, 0, 3, 99)).release);
}

TEST(FixedRetentionTest, BoundsAreTheDoubleProductEvenWhereThatIsBelowTheExactOne) {
  // 0.29 * 100 is 28.999999999999996 in double precision: 28, not 29.
  const FixedRetention policy({.max_cached_fraction = 0.29});
  EXPECT_EQ(decide(policy, figures(0, 0, 50)).bound, 28);
  EXPECT_TRUE(decide(policy, figures(29, 0, 50)).release);
}

TEST(FixedRetentionTest, TheLargestTotalIsExact) {
  constexpr std::int64_t kTotal = std::int64_t{1} << 53;
  constexpr std::int64_t kQuarter = kTotal / 4;
  EXPECT_FALSE(decide(FixedRetention(), figures(kQuarter, 0, kTotal / 2, kTotal)).release);
  EXPECT_TRUE(decide(FixedRetention(), figures(kQuarter + 1, 0, kTotal / 2, kTotal)).release);
  const FixedRetention all({.max_cached_fraction = 1.0, .min_free_fraction = 1.0});
  EXPECT_EQ(decide(all, figures(0, 0, kTotal, kTotal)).bound, kTotal);
  EXPECT_TRUE(decide(all, figures(0, 0, kTotal - 1, kTotal)).release);
}

TEST(FixedRetentionTest, FractionsOfZeroKeepNoByteAndNeedNoFreeOne) {
  const FixedRetention policy({.max_cached_fraction = 0.0, .min_free_fraction = 0.0});
  EXPECT_FALSE(decide(policy, figures(0, 0, 0)).release);
  EXPECT_TRUE(decide(policy, figures(1, 0, 0)).release);
}

TEST(FixedRetentionTest, TheDefaultIsAQuarterCachedAndAFifthOfAQuarterFree) {
  const FixedRetention policy;
  EXPECT_EQ(policy.name(), "fixed");
  EXPECT_TRUE(policy.needs_figures());
  EXPECT_EQ(policy.bounds().max_cached_fraction, 0.25);
  EXPECT_EQ(policy.bounds().min_free_fraction, 0.05);
}

std::string error_of(FixedRetentionBounds bounds) {
  try {
    const FixedRetention policy(bounds);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(FixedRetentionTest, FractionsOutsideZeroToOneAreRefusedWithFieldAndValue) {
  EXPECT_EQ(error_of({.max_cached_fraction = -0.25}),
            "fixed retention: max_cached_fraction must be in [0, 1], got -0.25");
  EXPECT_EQ(error_of({.max_cached_fraction = 1.5}),
            "fixed retention: max_cached_fraction must be in [0, 1], got 1.5");
  EXPECT_EQ(error_of({.min_free_fraction = -1e-09}),
            "fixed retention: min_free_fraction must be in [0, 1], got -1e-09");
  EXPECT_EQ(error_of({.min_free_fraction = 2.0}),
            "fixed retention: min_free_fraction must be in [0, 1], got 2");
}

TEST(FixedRetentionTest, NotANumberAndInfinityAreRefused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(error_of({.max_cached_fraction = kNan}),
            "fixed retention: max_cached_fraction must be in [0, 1], got nan");
  EXPECT_EQ(error_of({.min_free_fraction = kNan}),
            "fixed retention: min_free_fraction must be in [0, 1], got nan");
  EXPECT_NE(error_of({.max_cached_fraction = kInfinity}), "accepted");
}

TEST(FixedRetentionTest, TheStateChangesNothing) {
  const RetentionState full{.staged_bytes = 90, .observed_peak = 90};
  EXPECT_FALSE(FixedRetention().decide(figures(25, 0, 50), full).release);
  EXPECT_TRUE(FixedRetention().decide(figures(26, 0, 50), full).release);
  EXPECT_EQ(FixedRetention().decide(figures(26, 0, 50), full).bound, 25);
}

TEST(FixedRetentionTest, TheEndsOfTheRangeAreAccepted) {
  EXPECT_EQ(error_of({.max_cached_fraction = 0.0, .min_free_fraction = 1.0}), "accepted");
  EXPECT_EQ(error_of({.max_cached_fraction = 1.0, .min_free_fraction = 0.0}), "accepted");
}

}  // namespace
}  // namespace offstage
