// SPDX-License-Identifier: Apache-2.0
// What several threads see of one cache, and what a decision that keeps it costs.
#include "../base/cancelled_thread.hpp"
#include "../support/allocation_counter.hpp"

#include <offstage/retention/bounded_allocator_cache.hpp>
#include <offstage/retention/learned_retention.hpp>
#include <offstage/testing/fake_telemetry.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <latch>
#include <memory>
#include <pthread.h>
#include <thread>
#include <vector>

namespace offstage {
namespace {

using testing::FakeFailure;
using testing::FakeTelemetry;

const c10::Device kDevice(c10::DeviceType::CUDA, 0);
const MemoryFigures kWithin{.allocator = {.reserved = 10, .allocated = 0},
                            .device = {.free = 80, .total = 100}};
const MemoryFigures kExcess{.allocator = {.reserved = 30, .allocated = 0},
                            .device = {.free = 60, .total = 100}};

TEST(BoundedAllocatorCacheCostTest, ADecisionThatKeepsAllocatesNothing) {
  const auto telemetry = std::make_shared<FakeTelemetry>(kWithin);
  BoundedAllocatorCache cache(kDevice, telemetry);
  const std::int64_t before = allocations_of_this_thread();
  EXPECT_GT(before, 0) << "allocations are not counted";
  for (int i = 0; i < 100; ++i) cache.release_if_needed();
  EXPECT_EQ(allocations_of_this_thread() - before, 0);
  EXPECT_EQ(cache.decisions().size(), 32U) << "the ring was filled, and went round";
}

TEST(BoundedAllocatorCacheCostTest, ALearnedDecisionThatKeepsAllocatesNothing) {
  const auto telemetry = std::make_shared<FakeTelemetry>(kWithin);
  BoundedAllocatorCache cache(kDevice, telemetry, std::make_shared<LearnedRetention>());
  EXPECT_TRUE(cache.release_if_needed());
  telemetry->set_figures(kWithin);
  const std::int64_t before = allocations_of_this_thread();
  for (int i = 0; i < 100; ++i) cache.release_if_needed();
  EXPECT_EQ(allocations_of_this_thread() - before, 0);
  EXPECT_EQ(cache.counters().decisions(RetentionReason::kWithinBounds), 100);
}

/// Telemetry whose release stops until told to go on, so that a second decision can arrive.
class SlowRelease final : public TelemetryBackend {
 public:
  std::string_view name() const noexcept override { return "slow_release"; }
  AllocatorStats allocator_stats(c10::Device device) override {
    return fake.allocator_stats(device);
  }
  DeviceMemory device_memory(c10::Device device) override { return fake.device_memory(device); }
  void release_cached(c10::Device device) override {
    releasing.count_down();
    go_on.wait();
    fake.release_cached(device);
  }
  FakeTelemetry fake{kExcess};
  std::latch releasing{1};
  std::latch go_on{1};
};

TEST(BoundedAllocatorCacheThreadsTest, TwoThreadsReleaseOneExcessOnce) {
  const auto telemetry = std::make_shared<SlowRelease>();
  BoundedAllocatorCache cache(kDevice, telemetry);
  std::latch second_started{1};
  bool first_released = false;
  bool second_released = true;
  std::thread first([&] { first_released = cache.release_if_needed(); });
  telemetry->releasing.wait();
  std::thread second([&] {
    second_started.count_down();
    second_released = cache.release_if_needed();
  });
  second_started.wait();
  telemetry->go_on.count_down();
  first.join();
  second.join();
  EXPECT_TRUE(first_released);
  EXPECT_FALSE(second_released);
  EXPECT_EQ(telemetry->fake.calls().release_cached, 1);
}

// A component that is destroyed, or a program that looks at its counters, does not wait for a
// flush.
TEST(BoundedAllocatorCacheThreadsTest, NothingButDecisionsWaitsForARelease) {
  const auto telemetry = std::make_shared<SlowRelease>();
  BoundedAllocatorCache cache(kDevice, telemetry);
  std::thread releasing([&] { cache.release_if_needed(); });
  telemetry->releasing.wait();
  {
    StagedBytesToken token = cache.attach(100);
    token.resize(50);
    EXPECT_EQ(cache.state().staged_bytes, 50);
  }
  EXPECT_EQ(cache.counters().releases, 0);
  EXPECT_FALSE(cache.last_decision().has_value());
  EXPECT_TRUE(cache.decisions().empty());
  telemetry->go_on.count_down();
  releasing.join();
  EXPECT_EQ(cache.counters().releases, 1);
}

TEST(BoundedAllocatorCacheThreadsTest, AttachingDecidingAndReadingMayGoOnAtOnce) {
  constexpr int kThreads = 4;
  const auto telemetry = std::make_shared<FakeTelemetry>(kWithin);
  BoundedAllocatorCache cache(kDevice, telemetry, std::make_shared<LearnedRetention>());
  const StagedBytesToken kept = cache.attach(7);
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      for (int n = 0; n < 200; ++n) {
        StagedBytesToken token = cache.attach(n);
        cache.release_if_needed();
        token.resize(2 * n);
        EXPECT_GE(cache.state().staged_bytes, 7 + 2 * n);
        (void)cache.counters();
        (void)cache.decisions();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.state().staged_bytes, 7);
  const RetentionCounters counters = cache.counters();
  EXPECT_EQ(counters.decisions(RetentionReason::kCachedOverBound), 1) << "the cold start";
  EXPECT_EQ(counters.releases, 1);
  EXPECT_EQ(counters.decisions(RetentionReason::kWithinBounds), kThreads * 200 - 1);
  EXPECT_EQ(cache.decisions().size(), 32U);
}

TEST(BoundedAllocatorCacheThreadsTest, ManyThreadsLoseNoDecision) {
  const auto telemetry = std::make_shared<FakeTelemetry>(kWithin);
  BoundedAllocatorCache cache(kDevice, telemetry);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) {
        cache.release_if_needed(n % 10 == 0);
        (void)cache.last_decision();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.counters().decisions(RetentionReason::kForced), 20);
  EXPECT_EQ(cache.counters().decisions(RetentionReason::kWithinBounds), 180);
  EXPECT_EQ(cache.counters().releases, 20);
}

/// Telemetry whose calls are cancellation points, as a driver call is.
class CancellableTelemetry final : public TelemetryBackend {
 public:
  std::string_view name() const noexcept override { return "cancellable"; }
  AllocatorStats allocator_stats(c10::Device device) override {
    cancellation_point();
    return fake.allocator_stats(device);
  }
  DeviceMemory device_memory(c10::Device device) override { return fake.device_memory(device); }
  void release_cached(c10::Device device) override {
    cancellation_point();
    fake.release_cached(device);
  }
  FakeTelemetry fake{kWithin};
};

TEST(BoundedAllocatorCacheThreadsTest, ACancelledThreadUnwindsThroughADecision) {
  const auto telemetry = std::make_shared<CancellableTelemetry>();
  BoundedAllocatorCache cache(kDevice, telemetry);
  run_in_cancelled_thread([&] { cache.release_if_needed(); });
  EXPECT_FALSE(cache.last_decision().has_value()) << "a cancellation is not a failed figure";
  run_in_cancelled_thread([&] { cache.release_if_needed(/*force=*/true); });
  EXPECT_EQ(cache.counters().release_failures, 0) << "a cancellation is not a failed release";
  EXPECT_EQ(telemetry->fake.calls().release_cached, 0);
}

TEST(BoundedAllocatorCacheThreadsTest, AReleaseThatMayNotThrowIsNotCancelled) {
  const auto telemetry = std::make_shared<CancellableTelemetry>();
  BoundedAllocatorCache cache(kDevice, telemetry);
  run_in_cancelled_thread([&] { cache.release_forced(); });
  EXPECT_EQ(cache.counters().releases, 1);
}

}  // namespace
}  // namespace offstage
