// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/retention/learned_retention.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace offstage {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

MemoryFigures figures(std::int64_t cached, std::int64_t free, std::int64_t total = 100) {
  return {.allocator = {.reserved = cached}, .device = {.free = free, .total = total}};
}

RetentionVerdict decide(std::int64_t peak, const MemoryFigures& seen,
                        LearnedRetentionOptions options = {}) {
  return LearnedRetention(options).decide(seen, {.observed_peak = peak});
}

std::int64_t next_peak(std::int64_t peak, std::int64_t cached, double decay = 0.0) {
  return LearnedRetention({.peak_decay = decay})
      .next_peak(figures(cached, 50), {.observed_peak = peak});
}

TEST(LearnedRetentionTest, TheBoundIsThePeakAndAQuarterTruncated) {
  EXPECT_EQ(decide(30, figures(0, 500, 1000)).bound, 37);
  EXPECT_FALSE(decide(30, figures(37, 500, 1000)).release);
  EXPECT_TRUE(decide(30, figures(38, 500, 1000)).release);
  EXPECT_EQ(decide(30, figures(38, 500, 1000)).reason, RetentionReason::kCachedOverBound);
}

TEST(LearnedRetentionTest, TheBoundIsNeverAboveTheFractionOfTheDevice) {
  EXPECT_EQ(decide(30, figures(0, 50)).bound, 25);
  EXPECT_FALSE(decide(30, figures(25, 50)).release);
  EXPECT_TRUE(decide(30, figures(26, 50)).release);
}

TEST(LearnedRetentionTest, WithoutAPeakTheFirstCachedByteIsReleased) {
  EXPECT_TRUE(decide(0, figures(1, 80)).release);
  EXPECT_EQ(decide(0, figures(1, 80)).bound, 0);
  EXPECT_FALSE(decide(0, figures(0, 80)).release);
}

TEST(LearnedRetentionTest, FreeExactlyAtTheBoundKeepsAndOneByteLessReleases) {
  EXPECT_FALSE(decide(20, figures(20, 5)).release);
  EXPECT_TRUE(decide(20, figures(20, 4)).release);
  EXPECT_EQ(decide(20, figures(20, 4)).reason, RetentionReason::kLowFree);
  EXPECT_EQ(decide(20, figures(20, 4)).bound, 5);
}

TEST(LearnedRetentionTest, IfBothHoldTheReasonIsTheCache) {
  EXPECT_EQ(decide(30, figures(30, 4)).reason, RetentionReason::kCachedOverBound);
  EXPECT_EQ(decide(30, figures(30, 4)).bound, 25);
}

TEST(LearnedRetentionTest, APeakOfAnySizeIsBoundedByTheDevice) {
  EXPECT_EQ(decide(kMax, figures(0, 50)).bound, 25);
  EXPECT_EQ(decide(kMax, figures(0, 50), {.growth = std::numeric_limits<double>::max()}).bound, 25);
  EXPECT_EQ(
      decide(kMax, figures(0, kMaxTotalBytes, kMaxTotalBytes), {.max_cached_fraction = 1.0}).bound,
      kMaxTotalBytes);
}

TEST(LearnedRetentionTest, AGrowthOfOneAllowsThePeakAndNoMore) {
  EXPECT_FALSE(decide(20, figures(20, 50), {.growth = 1.0}).release);
  EXPECT_TRUE(decide(20, figures(21, 50), {.growth = 1.0}).release);
}

TEST(LearnedRetentionTest, ThePeakIsTheMostThatWasCached) {
  EXPECT_EQ(next_peak(0, 30), 30);
  EXPECT_EQ(next_peak(30, 20), 30);
  EXPECT_EQ(next_peak(30, 31), 31);
  EXPECT_EQ(next_peak(kMax - 1, 1), kMax - 1) << "without a decay no double is involved";
}

TEST(LearnedRetentionTest, ADecayShrinksThePeakToWhatIsCached) {
  EXPECT_EQ(next_peak(100, 0, 0.1), 90);
  EXPECT_EQ(next_peak(99, 0, 0.1), 89);  // 89.1
  EXPECT_EQ(next_peak(100, 95, 0.1), 95);
  EXPECT_EQ(next_peak(100, 100, 0.1), 100) << "a steady pipeline keeps its peak";
  EXPECT_EQ(next_peak(100, 7, 1.0), 7);
}

// What the documents promise: with growth 1.25 and a decay of 2 %, eleven small components between
// two large ones cost no release.
TEST(LearnedRetentionTest, WithADecayAsAdvisedARareComponentIsNotReleased) {
  constexpr std::int64_t kLarge = 200'000'000;
  const LearnedRetention policy({.peak_decay = 0.02});
  const MemoryFigures large = figures(kLarge, 5 * kLarge, 10 * kLarge);
  const MemoryFigures small = figures(kLarge / 20, 5 * kLarge, 10 * kLarge);
  RetentionState state{.observed_peak = kLarge};
  for (int i = 0; i < 11; ++i) state.observed_peak = policy.next_peak(small, state);
  EXPECT_FALSE(policy.decide(large, state).release);
  state.observed_peak = policy.next_peak(small, state);
  EXPECT_TRUE(policy.decide(large, state).release);
}

TEST(LearnedRetentionTest, ASpikeIsForgottenWithADecayAndNotWithoutOne) {
  const auto bound_after_spike = [](double decay) {
    const LearnedRetention policy({.peak_decay = decay});
    RetentionState state{.observed_peak = 800};
    for (int i = 0; i < 100; ++i) {
      state.observed_peak = policy.next_peak(figures(100, 5000, 10000), state);
    }
    return policy.decide(figures(100, 5000, 10000), state).bound;
  };
  EXPECT_EQ(bound_after_spike(0.0), 1000);
  EXPECT_EQ(bound_after_spike(0.05), 125);
}

TEST(LearnedRetentionTest, TheDefaultsAreThoseOfTheReference) {
  const LearnedRetention policy;
  EXPECT_EQ(policy.name(), "learned");
  EXPECT_TRUE(policy.needs_figures());
  EXPECT_EQ(policy.options().growth, 1.25);
  EXPECT_EQ(policy.options().max_cached_fraction, 0.25);
  EXPECT_EQ(policy.options().min_free_fraction, 0.05);
  EXPECT_EQ(policy.options().peak_decay, 0.0);
}

std::string error_of(LearnedRetentionOptions options) {
  try {
    const LearnedRetention policy(options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LearnedRetentionTest, FractionsOutsideZeroToOneAreRefusedWithFieldAndValue) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error_of({.max_cached_fraction = 1.5}),
            "learned retention: max_cached_fraction must be in [0, 1], got 1.5");
  EXPECT_EQ(error_of({.min_free_fraction = -1e-09}),
            "learned retention: min_free_fraction must be in [0, 1], got -1e-09");
  EXPECT_EQ(error_of({.peak_decay = kNan}),
            "learned retention: peak_decay must be in [0, 1], got nan");
  EXPECT_EQ(error_of({.max_cached_fraction = 0.0, .min_free_fraction = 1.0, .peak_decay = 1.0}),
            "accepted");
}

TEST(LearnedRetentionTest, AGrowthThatIsNoneIsRefusedWithItsValue) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(error_of({.growth = 1.0}), "accepted");
  EXPECT_EQ(error_of({.growth = std::nextafter(1.0, 0.0)}),
            "learned retention: growth must be finite and at least 1, got 0.9999999999999999");
  EXPECT_EQ(error_of({.growth = 0.5}),
            "learned retention: growth must be finite and at least 1, got 0.5");
  EXPECT_EQ(error_of({.growth = kInfinity}),
            "learned retention: growth must be finite and at least 1, got inf");
  EXPECT_EQ(error_of({.growth = std::numeric_limits<double>::quiet_NaN()}),
            "learned retention: growth must be finite and at least 1, got nan");
}

}  // namespace
}  // namespace offstage
