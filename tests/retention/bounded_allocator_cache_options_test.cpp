// SPDX-License-Identifier: Apache-2.0
// What a cache says of its decisions, and when it does not release what it might.
#include "cache_fixture.hpp"

#include <offstage/base/error.hpp>
#include <offstage/retention/learned_retention.hpp>

#include <limits>
#include <string>
#include <vector>

namespace offstage {
namespace {

class CacheHistoryTest : public CacheTest {
 protected:
  /// The figures of cached that are remembered after decisions that found 1, 2, ... cached.
  std::vector<std::int64_t> remembered(std::size_t kept, int decisions) const {
    const auto cache = cache_of(std::make_shared<FixedRetention>(), {.decisions_kept = kept});
    for (int i = 1; i <= decisions; ++i) (void)releases(*cache, i);
    std::vector<std::int64_t> found;
    for (const RetentionDecision& each : cache->decisions()) {
      found.push_back(each.figures->cached());
    }
    return found;
  }
};

using Figures = std::vector<std::int64_t>;

TEST_F(CacheHistoryTest, TheLatestDecisionsAreRememberedOldestFirst) {
  EXPECT_EQ(remembered(3, 0), Figures{});
  EXPECT_EQ(remembered(3, 2), (Figures{1, 2}));
  EXPECT_EQ(remembered(3, 3), (Figures{1, 2, 3}));
  EXPECT_EQ(remembered(3, 5), (Figures{3, 4, 5}));
  EXPECT_EQ(remembered(3, 6), (Figures{4, 5, 6}));
  EXPECT_EQ(remembered(1, 4), Figures{4});
}

TEST_F(CacheHistoryTest, ByDefaultThirtyTwoAreRemembered) {
  const auto cache = cache_of(std::make_shared<FixedRetention>());
  for (int i = 0; i < 40; ++i) (void)releases(*cache, 1);
  EXPECT_EQ(cache->decisions().size(), 32U);
}

TEST_F(CacheHistoryTest, MoreDecisionsThanMemoryHoldsAreRefusedByName) {
  try {
    (void)cache_of(std::make_shared<FixedRetention>(),
                   {.decisions_kept = std::numeric_limits<std::size_t>::max()});
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(
        error.what(),
        "bounded allocator cache: decisions_kept is out of range, got 18446744073709551615");
  }
}

TEST_F(CacheHistoryTest, WithoutARingTheLatestIsStillKnown) {
  const auto cache = cache_of(std::make_shared<FixedRetention>(), {.decisions_kept = 0});
  (void)releases(*cache, 7);
  EXPECT_TRUE(cache->decisions().empty());
  EXPECT_EQ(cache->last_decision()->figures->cached(), 7);
}

TEST_F(CacheHistoryTest, TheDecisionsMakeATable) {
  const auto cache = cache_of(std::make_shared<LearnedRetention>());
  (void)releases(*cache, 20);
  (void)releases(*cache, 25);
  (void)cache->release_if_needed(/*force=*/true);
  const std::string table = to_text(cache->decisions());
  EXPECT_NE(table.find("cached_over_bound      20      0          20    50    100     0"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("within_bounds          25     25          25    50    100    20"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("forced                  -      0           -     -      -    25"),
            std::string::npos)
      << table;
}

class FruitlessTest : public CacheTest {
 protected:
  const BoundedAllocatorCacheOptions kSkip{.skip_fruitless_releases = true};
};

TEST_F(FruitlessTest, ADecisionSaysHowMuchAReleaseCanGiveBack) {
  const auto cache = cache_of(std::make_shared<FixedRetention>());
  find(30, 50, 100, /*inactive_split=*/12);
  EXPECT_TRUE(cache->release_if_needed());
  EXPECT_EQ(cache->last_decision()->releasable, 18);
  find(10, 50, 100, 12);
  EXPECT_FALSE(cache->release_if_needed());
  EXPECT_EQ(cache->last_decision()->releasable, 0) << "never negative";
}

TEST_F(FruitlessTest, ByDefaultAReleaseThatCanGiveNothingBackIsMade) {
  const auto cache = cache_of(std::make_shared<FixedRetention>());
  find(30, 50, 100, 30);
  EXPECT_TRUE(cache->release_if_needed());
  EXPECT_EQ(cache->last_decision()->reason, RetentionReason::kCachedOverBound);
}

TEST_F(FruitlessTest, OnRequestAReleaseThatCanGiveNothingBackIsSkippedAndSaysSo) {
  const auto cache = cache_of(std::make_shared<FixedRetention>(), kSkip);
  find(30, 50, 100, 30);
  EXPECT_FALSE(cache->release_if_needed());
  EXPECT_EQ(cache->last_decision()->reason, RetentionReason::kNothingToRelease);
  EXPECT_EQ(cache->last_decision()->bound, 25);
  EXPECT_FALSE(cache->last_decision()->released);
  EXPECT_EQ(cache->counters().decisions(RetentionReason::kNothingToRelease), 1);
  ASSERT_EQ(sink->count(EventKind::kRetentionDecided), 1U);
  EXPECT_EQ(sink->events(EventKind::kRetentionDecided)[0].reason, "nothing_to_release");
  EXPECT_EQ(release_calls(), 0);
}

TEST_F(FruitlessTest, OneByteThatCanBeGivenBackIsReleased) {
  const auto cache = cache_of(std::make_shared<FixedRetention>(), kSkip);
  find(30, 50, 100, 29);
  EXPECT_TRUE(cache->release_if_needed());
  EXPECT_EQ(cache->last_decision()->reason, RetentionReason::kCachedOverBound);
}

TEST_F(FruitlessTest, WithNothingCachedLowFreeMemoryIsNoReasonToFlush) {
  const auto cache = cache_of(std::make_shared<FixedRetention>(), kSkip);
  find(0, 4);
  EXPECT_FALSE(cache->release_if_needed());
  EXPECT_EQ(cache->last_decision()->reason, RetentionReason::kNothingToRelease);
}

TEST_F(FruitlessTest, ForcedAndBlindReleasesAndThoseOfAPolicyWithoutFiguresAreMade) {
  find(30, 50, 100, 30);
  const auto cache = cache_of(std::make_shared<FixedRetention>(), kSkip);
  EXPECT_TRUE(cache->release_if_needed(/*force=*/true));
  telemetry->fail_allocator_stats(testing::FakeFailure::kTelemetryError);
  EXPECT_TRUE(cache->release_if_needed());
  EXPECT_EQ(cache->last_decision()->reason, RetentionReason::kTelemetryFailed);
  EXPECT_TRUE(cache_of(std::make_shared<NeverRetention>(), kSkip)->release_if_needed());
}

TEST_F(FruitlessTest, ASkippedReleaseIsLearnedFrom) {
  const auto cache = cache_of(std::make_shared<LearnedRetention>(), kSkip);
  find(20, 50, 100, 20);
  EXPECT_FALSE(cache->release_if_needed());
  EXPECT_EQ(cache->state().observed_peak, 20);
}

}  // namespace
}  // namespace offstage
