// SPDX-License-Identifier: Apache-2.0
// The learned policy through the cache that keeps its state.
#include "cache_fixture.hpp"

#include <offstage/retention/learned_retention.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace offstage {
namespace {

class LearnedCacheTest : public CacheTest {
 protected:
  const std::unique_ptr<BoundedAllocatorCache> cache =
      cache_of(std::make_shared<LearnedRetention>());

  std::int64_t peak() const { return cache->state().observed_peak; }
};

// case P07
TEST_F(LearnedCacheTest, AColdStartReleasesTheFirstCachedByteAndRemembersIt) {
  EXPECT_EQ(cache->state(), RetentionState{});
  EXPECT_TRUE(releases(*cache, 1));
  EXPECT_EQ(peak(), 1);
  EXPECT_EQ(cache->last_decision()->reason, RetentionReason::kCachedOverBound);
  EXPECT_EQ(cache->last_decision()->bound, 0);
  EXPECT_EQ(cache->last_decision()->state.observed_peak, 0) << "decided with the old peak";
}

TEST_F(LearnedCacheTest, PrimedWithThirtyOfAHundredTheCapGoverns) {
  EXPECT_TRUE(releases(*cache, 30));
  EXPECT_EQ(peak(), 30);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(releases(*cache, 30)) << "cached 30, cap 25";
    EXPECT_EQ(cache->last_decision()->bound, 25);
  }
  EXPECT_FALSE(releases(*cache, 20));
  EXPECT_EQ(peak(), 30);
}

TEST_F(LearnedCacheTest, PrimedWithThirtyOfAThousandTheBudgetIsThirtySeven) {
  EXPECT_TRUE(releases(*cache, 30, 500, 1000));
  EXPECT_FALSE(releases(*cache, 37, 500, 1000));
  EXPECT_EQ(cache->last_decision()->bound, 37);
  EXPECT_EQ(peak(), 37) << "a decision that keeps raises the peak as well";
}

TEST_F(LearnedCacheTest, OneSpikeCostsOneRelease) {
  EXPECT_TRUE(releases(*cache, 100, 5000, 10000));
  EXPECT_FALSE(releases(*cache, 100, 5000, 10000));
  EXPECT_TRUE(releases(*cache, 200, 5000, 10000)) << "the spike";
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(releases(*cache, 100, 5000, 10000));
    EXPECT_FALSE(releases(*cache, 200, 5000, 10000));
  }
  EXPECT_EQ(cache->counters().releases, 2);
}

TEST_F(LearnedCacheTest, WhenBothReasonsHoldTheCacheIsNamed) {
  EXPECT_TRUE(releases(*cache, 30, 4));
  EXPECT_EQ(cache->last_decision()->reason, RetentionReason::kCachedOverBound);
}

TEST_F(LearnedCacheTest, LowFreeReleasesAndRaisesThePeak) {
  EXPECT_TRUE(releases(*cache, 10));
  EXPECT_TRUE(releases(*cache, 12, 4));
  EXPECT_EQ(cache->last_decision()->reason, RetentionReason::kLowFree);
  EXPECT_EQ(peak(), 12);
}

TEST_F(LearnedCacheTest, DecisionsWithoutFiguresLeaveThePeakAlone) {
  EXPECT_TRUE(releases(*cache, 10));
  find(20);
  EXPECT_TRUE(cache->release_if_needed(/*force=*/true));
  telemetry->fail_device_memory(testing::FakeFailure::kStdException);
  EXPECT_TRUE(cache->release_if_needed());
  EXPECT_EQ(peak(), 10);
  EXPECT_EQ(cache->last_decision()->state.observed_peak, 10);
}

TEST_F(LearnedCacheTest, AReleaseThatFailsHasRaisedThePeak) {
  find(20);
  telemetry->fail_release(testing::FakeFailure::kStdException);
  EXPECT_ANY_THROW(cache->release_if_needed());
  EXPECT_EQ(peak(), 20);
}

TEST_F(LearnedCacheTest, DetachingOneOfTwoKeepsThePeakAndTheLastResetsIt) {
  StagedBytesToken first = cache->attach(100);
  StagedBytesToken second = cache->attach(50);
  EXPECT_EQ(cache->state().staged_bytes, 150);
  EXPECT_TRUE(releases(*cache, 30, 500, 1000));
  first.detach();
  EXPECT_EQ(cache->state(), (RetentionState{.staged_bytes = 50, .observed_peak = 30}));
  EXPECT_FALSE(releases(*cache, 30, 500, 1000));
  EXPECT_EQ(cache->last_decision()->bound, 37);
  EXPECT_EQ(cache->last_decision()->state.staged_bytes, 50);
  second.detach();
  EXPECT_EQ(cache->state(), RetentionState{});
  EXPECT_TRUE(releases(*cache, 30, 500, 1000)) << "a cold start again";
}

// --- properties ---

constexpr std::int64_t kTotal = 1000;

bool releases(const LearnedRetention& policy, std::int64_t peak, std::int64_t cached,
              std::int64_t free) {
  return policy
      .decide({.allocator = {.reserved = cached}, .device = {.free = free, .total = kTotal}},
              {.observed_peak = peak})
      .release;
}

TEST(LearnedRetentionPropertyTest, WhatReleasesAlsoReleasesWithMoreCachedOrLessFree) {
  const LearnedRetention policy;
  for (std::int64_t peak = 0; peak <= 300; peak += 7) {
    for (const std::int64_t free : {0, 49, 50, 51, 500}) {
      bool released = false;
      for (std::int64_t cached = 0; cached <= 400; ++cached) {
        const bool now = releases(policy, peak, cached, free);
        EXPECT_TRUE(now || !released) << peak << ' ' << cached << ' ' << free;
        EXPECT_TRUE(now || !releases(policy, peak, cached, free + 1));
        released = now;
      }
    }
  }
}

TEST(LearnedRetentionPropertyTest, NeverKeepsMoreThanTheCapOrMoreThanTheBudget) {
  const LearnedRetention policy;
  for (std::int64_t peak = 0; peak <= 500; ++peak) {
    for (std::int64_t cached = 0; cached <= 500; ++cached) {
      if (releases(policy, peak, cached, 500)) continue;
      ASSERT_LE(cached, 250);
      ASSERT_LE(cached, peak * 5 / 4);
    }
  }
}

TEST_F(LearnedCacheTest, BelowTheCapThereIsOneReleaseForEachGrowthBeyondAQuarter) {
  std::mt19937 random(6);
  constexpr std::int64_t kMost = 1 << 20;
  for (int run = 0; run < 50; ++run) {
    const auto learning = cache_of(std::make_shared<LearnedRetention>());
    std::int64_t first = 0;
    std::int64_t most = 0;
    for (int i = 0; i < 200; ++i) {
      const std::int64_t cached = std::uniform_int_distribution<std::int64_t>(1, kMost)(random) >>
                                  std::uniform_int_distribution<int>(0, 19)(random);
      (void)releases(*learning, cached, 8 * kMost, 16 * kMost);
      if (first == 0) first = cached;
      most = std::max(most, cached);
    }
    const double growths =
        std::log(static_cast<double>(most) / static_cast<double>(first)) / std::log(1.25);
    EXPECT_LE(learning->counters().releases, 1 + std::floor(growths + 1e-9)) << "and a cold start";
  }
}

// --- a naive restatement of the rule, and twenty thousand steps of both ---

struct Model {
  BoundedAllocatorCacheOptions options;
  bool halves = false;  // A decay of one half.
  std::vector<std::int64_t> attached = {};
  std::int64_t peak = 0;

  std::int64_t staged() const {
    std::int64_t sum = 0;
    for (const std::int64_t bytes : attached) sum += bytes;
    return sum;
  }
  void change(const std::function<void()>& make) {
    const std::int64_t before = staged();
    make();
    if (before > 0 && staged() == 0) peak = 0;
  }
  RetentionReason decide(std::int64_t cached, std::int64_t split, std::int64_t free,
                         std::int64_t total) {
    RetentionReason reason = RetentionReason::kWithinBounds;
    if (free * 20 < total - total % 20) reason = RetentionReason::kLowFree;
    if (cached > std::min(peak * 5 / 4, total / 4)) reason = RetentionReason::kCachedOverBound;
    if (reason != RetentionReason::kWithinBounds && options.skip_fruitless_releases &&
        cached <= split) {
      reason = RetentionReason::kNothingToRelease;
    }
    peak = std::max(cached, halves ? peak / 2 : peak);
    return reason;
  }
};

struct ModelCase {
  const char* name;
  bool skip;
  bool halves;
};

class LearnedModelTest : public CacheTest, public ::testing::WithParamInterface<ModelCase> {
 protected:
  std::int64_t draw(std::int64_t first, std::int64_t last) {
    return std::uniform_int_distribution<std::int64_t>(first, last)(random);
  }

  void change_ledger(BoundedAllocatorCache& cache, Model& model) {
    const bool has_one = !model.attached.empty();
    const auto index = static_cast<std::size_t>(has_one ? draw(0, std::ssize(tokens) - 1) : 0);
    const std::int64_t bytes = draw(0, 4) * 100;
    const auto at = static_cast<std::ptrdiff_t>(index);
    switch (has_one ? draw(0, 3) : 0) {
      case 0:
        tokens.push_back(cache.attach(bytes));
        return model.change([&] { model.attached.push_back(bytes); });
      case 1:
        tokens[index].resize(bytes);
        return model.change([&] { model.attached[index] = bytes; });
      default:
        tokens.erase(tokens.begin() + at);
        return model.change([&] { model.attached.erase(model.attached.begin() + at); });
    }
  }

  std::mt19937 random{20};
  std::vector<StagedBytesToken> tokens;
};

TEST_P(LearnedModelTest, TwentyThousandStepsAgreeWithTheNaiveRule) {
  using testing::FakeFailure;
  Model model{.options = {.skip_fruitless_releases = GetParam().skip}, .halves = GetParam().halves};
  const auto cache = cache_of(std::make_shared<LearnedRetention>(
                                  LearnedRetentionOptions{.peak_decay = model.halves ? 0.5 : 0.0}),
                              model.options);
  RetentionCounters expected;
  for (int step = 0; step < 20000; ++step) {
    const std::int64_t kind = draw(0, 9);
    if (kind == 0) {
      change_ledger(*cache, model);
      ASSERT_EQ(cache->state(), (RetentionState{model.staged(), model.peak})) << step;
      continue;
    }
    const std::int64_t total = draw(1, 400);
    const std::int64_t free = draw(0, draw(0, 1) == 0 ? total / 10 : total);
    const std::int64_t cached = draw(0, total / 2);
    const std::int64_t split = draw(0, 1) * draw(0, cached);
    const bool blind = draw(0, 19) == 0;
    const bool force = draw(0, 19) == 0;
    const bool release_fails = draw(0, 9) == 0;
    find(cached, free, total, split);
    telemetry->fail_allocator_stats(blind ? FakeFailure::kNotStd : FakeFailure::kNone);
    telemetry->fail_release(release_fails ? FakeFailure::kStdException : FakeFailure::kNone);
    RetentionReason reason = RetentionReason::kForced;
    if (!force && blind) {
      reason = RetentionReason::kTelemetryFailed;
      ++expected.telemetry_failures[0];
    } else if (!force) {
      reason = model.decide(cached, split, free, total);
    }
    const bool release =
        reason != RetentionReason::kWithinBounds && reason != RetentionReason::kNothingToRelease;
    ++expected.by_reason[static_cast<std::size_t>(reason)];
    if (release) ++(release_fails ? expected.release_failures : expected.releases);
    if (release && release_fails) {
      EXPECT_ANY_THROW(cache->release_if_needed(force));
    } else {
      EXPECT_EQ(cache->release_if_needed(force), release);
    }
    ASSERT_EQ(cache->last_decision()->reason, reason) << step;
    ASSERT_EQ(cache->last_decision()->released, release && !release_fails) << step;
    ASSERT_EQ(cache->state(), (RetentionState{model.staged(), model.peak})) << step;
  }
  const RetentionCounters counters = cache->counters();
  EXPECT_EQ(counters.by_reason, expected.by_reason);
  EXPECT_EQ(counters.telemetry_failures, expected.telemetry_failures);
  EXPECT_EQ(counters.releases, expected.releases);
  EXPECT_EQ(counters.release_failures, expected.release_failures);
  EXPECT_EQ(release_calls(), counters.releases + counters.release_failures);
  for (const RetentionReason each :
       {RetentionReason::kWithinBounds, RetentionReason::kCachedOverBound,
        RetentionReason::kLowFree}) {
    EXPECT_GT(counters.decisions(each), 500) << "the figures are too uniform to test anything";
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, LearnedModelTest,
                         ::testing::Values(ModelCase{"Plain", false, false},
                                           ModelCase{"SkippingFruitlessReleases", true, false},
                                           ModelCase{"WithADecay", false, true}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace offstage
