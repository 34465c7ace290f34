// SPDX-License-Identifier: Apache-2.0
// What the policies cost and keep, with real blocks behind the figures.
#include <offstage/base/bytes.hpp>
#include <offstage/device/generic_telemetry.hpp>
#include <offstage/device/host_allocator_memory.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>
#include <offstage/retention/learned_retention.hpp>
#include <offstage/staging/pinned_module_stager.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/ops/full.h>
#include <c10/core/Allocator.h>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace offstage {
namespace {

class RetentionOnSimulatorTest : public ::testing::Test {
 protected:
  RetentionOnSimulatorTest() { simulator.reset(); }
  void TearDown() override { EXPECT_NO_THROW(simulator.reset()); }

  std::shared_ptr<BoundedAllocatorCache> cache_of(std::shared_ptr<const RetentionPolicy> policy,
                                                  BoundedAllocatorCacheOptions options = {}) const {
    return std::make_shared<BoundedAllocatorCache>(simulator.device(), telemetry, std::move(policy),
                                                   nullptr, std::move(options));
  }
  std::unique_ptr<PinnedModuleStager> component(std::int64_t bytes) const {
    return std::make_unique<PinnedModuleStager>(
        std::vector<NamedTensor>{{"weight", at::full({bytes / 4}, 1.0F)}}, context);
  }

  testing::Simulator& simulator = testing::Simulator::install({.host_caching = true});
  const std::shared_ptr<TelemetryBackend> telemetry = std::make_shared<GenericTelemetry>();
  const std::shared_ptr<DeviceContext> context = DeviceContext::create(
      simulator.device(),
      {.host_memory = std::make_shared<HostAllocatorMemory>(simulator.device().type()),
       .telemetry = telemetry});
};

// --- case C30: ten rounds of encoder, transformer and decoder ---

/// What each round released, and took from the device.
struct Rounds {
  std::array<std::int64_t, 10> releases{};
  std::array<std::int64_t, 10> segments{};

  std::int64_t all_releases() const {
    std::int64_t sum = 0;
    for (const std::int64_t each : releases) sum += each;
    return sum;
  }
  std::int64_t releases_after_the_first() const { return all_releases() - releases[0]; }
  std::int64_t segments_after_the_first() const {
    std::int64_t sum = 0;
    for (const std::int64_t each : segments) sum += each;
    return sum - segments[0];
  }
};

class RoundsTest : public RetentionOnSimulatorTest {
 protected:
  /// With components of 32, 40 and 8 MiB on a device of 1 GiB.
  Rounds ten_rounds(const std::shared_ptr<BoundedAllocatorCache>& cache,
                    std::array<std::int64_t, 3> sizes = {32, 40, 8}) {
    std::vector<std::unique_ptr<PinnedModuleStager>> pipeline;
    for (const std::int64_t size : sizes) {
      pipeline.push_back(component(size * kMiB));
      pipeline.back()->set_cache(cache);
    }
    EXPECT_EQ(cache->state().staged_bytes, (sizes[0] + sizes[1] + sizes[2]) * kMiB);
    Rounds rounds;
    for (std::size_t round = 0; round < 10; ++round) {
      const auto before = simulator.counters();
      for (const auto& stager : pipeline) {
        stager->load();
        stager->offload();
      }
      const auto done = simulator.counters() - before;
      rounds.releases[round] = done.cache_releases;
      rounds.segments[round] = done.segments_allocated;
    }
    return rounds;
  }
};

TEST_F(RoundsTest, WithinFixedBoundsNothingIsReleasedAndNothingAllocatedAfterTheFirst) {
  const Rounds rounds = ten_rounds(cache_of(std::make_shared<FixedRetention>()));
  EXPECT_EQ(rounds.all_releases(), 0);
  EXPECT_EQ(rounds.segments_after_the_first(), 0);
}

TEST_F(RoundsTest, WithoutRetentionEveryOffloadReleasesAndEveryLoadAllocates) {
  const Rounds rounds = ten_rounds(cache_of(std::make_shared<NeverRetention>()));
  EXPECT_EQ(rounds.all_releases(), 30);
  EXPECT_EQ(rounds.segments_after_the_first(), 27);
}

// case P07
TEST_F(RoundsTest, TheLearnedPolicyPaysForItsColdStartInTheFirstRoundAlone) {
  const auto cache = cache_of(std::make_shared<LearnedRetention>());
  const Rounds rounds = ten_rounds(cache);
  EXPECT_EQ(rounds.releases[0], 1) << "the first component; the second is no quarter larger";
  EXPECT_EQ(rounds.releases_after_the_first(), 0);
  EXPECT_EQ(rounds.segments_after_the_first(), 0);
  EXPECT_EQ(cache->counters().decisions(RetentionReason::kCachedOverBound), 1);
  EXPECT_EQ(cache->counters().decisions(RetentionReason::kWithinBounds), 29);
}

// Each component is more than a quarter larger than the one before. After the last release of the
// first round nothing is cached; so all three lie beside each other only in the second: a growth
// that the first could not show.
TEST_F(RoundsTest, EachGrowthBeyondAQuarterCostsTheLearnedPolicyOneMore) {
  const Rounds rounds = ten_rounds(cache_of(std::make_shared<LearnedRetention>()), {20, 40, 60});
  EXPECT_EQ(rounds.releases, (std::array<std::int64_t, 10>{3, 1}));
}

TEST_F(RoundsTest, AboveTheCapTheLearnedPolicyReleasesForEver) {
  simulator.set_capacity(0, 100 * kMiB);
  const auto cache = cache_of(std::make_shared<LearnedRetention>());
  const auto stager = component(30 * kMiB);
  stager->set_cache(cache);
  for (int i = 0; i < 3; ++i) {
    stager->load();
    stager->offload();
    EXPECT_TRUE(cache->last_decision()->released);
    EXPECT_EQ(cache->last_decision()->bound, i == 0 ? 0 : 25 * kMiB);
  }
}

// --- releases that can give nothing back ---

class FragmentedTest : public RetentionOnSimulatorTest {
 protected:
  /// Half of what the allocator holds is idle, and no segment is idle as a whole.
  testing::Fragmentation fragment() const {
    return simulator.fragment(context->copy_stream(), 512 * kKiB, 16);
  }
  const std::shared_ptr<const RetentionPolicy> nothing_cached =
      std::make_shared<FixedRetention>(FixedRetentionBounds{.max_cached_fraction = 0.0});
};

TEST_F(FragmentedTest, HolesBetweenBlocksInUseCannotBeReleased) {
  const auto holes = fragment();
  const auto cache = cache_of(nothing_cached);
  const auto reserved = simulator.memory().reserved;
  EXPECT_TRUE(cache->release_if_needed());
  EXPECT_EQ(cache->last_decision()->figures->cached(), 8 * kMiB);
  EXPECT_EQ(cache->last_decision()->releasable, 0);
  EXPECT_EQ(simulator.memory().reserved, reserved) << "the release was for nothing";
}

TEST_F(FragmentedTest, OnRequestSuchAReleaseIsNotMade) {
  const auto holes = fragment();
  const auto cache = cache_of(nothing_cached, {.skip_fruitless_releases = true});
  const auto before = simulator.counters();
  EXPECT_FALSE(cache->release_if_needed());
  EXPECT_EQ(cache->last_decision()->reason, RetentionReason::kNothingToRelease);
  EXPECT_EQ((simulator.counters() - before).cache_releases, 0);
}

TEST_F(FragmentedTest, WhatTheDecisionSaysIsWhatTheReleaseGivesBack) {
  const auto holes = fragment();
  (void)c10::GetAllocator(simulator.device().type())->allocate(30 * kMiB);
  const auto cache = cache_of(nothing_cached, {.skip_fruitless_releases = true});
  const auto reserved = simulator.memory().reserved;
  EXPECT_TRUE(cache->release_if_needed());
  EXPECT_EQ(cache->last_decision()->releasable, 30 * kMiB);
  EXPECT_EQ(reserved - simulator.memory().reserved, 30 * kMiB);
}

// --- case C19: the host ---

TEST_F(RetentionOnSimulatorTest, MastersThatDiedAreGivenBackByTheNextDecision) {
  const auto host = std::make_shared<HostCacheBound>(simulator.device().type(), 0);
  const auto cache = cache_of(std::make_shared<FixedRetention>(), {.host_cache = host});
  const std::int64_t before = simulator.pinned_bytes();
  auto leaving = component(24 * kMiB);
  const auto staying = component(8 * kMiB);
  staying->set_cache(cache);
  EXPECT_EQ(simulator.pinned_bytes() - before, 32 * kMiB);
  leaving.reset();
  EXPECT_EQ(simulator.pinned_bytes() - before, 32 * kMiB) << "LibTorch's allocator keeps it";
  staying->load();
  staying->offload();
  EXPECT_EQ(simulator.pinned_bytes() - before, 8 * kMiB);
  EXPECT_EQ(host->last_decision()->cached, 24 * kMiB);
  EXPECT_EQ(host->counters().releases, 1);
  EXPECT_EQ(cache->counters().releases, 0) << "a setting of its own";
}

TEST_F(RetentionOnSimulatorTest, WithinTheBoundTheHostsMemoryServesTheNextComponent) {
  const auto host = std::make_shared<HostCacheBound>(simulator.device().type(), 24 * kMiB);
  component(24 * kMiB).reset();
  EXPECT_FALSE(host->release_if_needed());
  const std::int64_t pinned = simulator.pinned_bytes();
  const auto next = component(24 * kMiB);
  EXPECT_EQ(simulator.pinned_bytes(), pinned) << "nothing new was pinned";
  EXPECT_FALSE(host->release_if_needed());
  EXPECT_EQ(host->last_decision()->cached, 0);
}

}  // namespace
}  // namespace offstage
