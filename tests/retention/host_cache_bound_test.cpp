// SPDX-License-Identifier: Apache-2.0
// case C19, the part that is about LibTorch's own cache of pinned memory.
#include "cache_fixture.hpp"
#include "fake_host_allocator.hpp"

#include <offstage/base/error.hpp>
#include <offstage/retention/host_cache_bound.hpp>

#include <cstdint>
#include <latch>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

namespace offstage {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::XPU;

class HostCacheBoundTest : public CacheTest {
 protected:
  FakeHostAllocator& allocator = installed_host_allocator();
  HostCacheBound bound{kType, 100, sink};

  bool releases_with(std::int64_t cached) {
    allocator.held = allocator.in_use + cached;
    return bound.release_if_needed();
  }
};

TEST_F(HostCacheBoundTest, ExactlyTheBoundIsKeptAndOneByteMoreReleased) {
  allocator.in_use = 5000;
  EXPECT_FALSE(releases_with(100));
  EXPECT_EQ(allocator.releases, 0);
  EXPECT_EQ(bound.last_decision()->reason, RetentionReason::kWithinBounds);
  EXPECT_EQ(bound.last_decision()->cached, 100);
  EXPECT_TRUE(releases_with(101));
  EXPECT_EQ(allocator.releases, 1);
  EXPECT_EQ(bound.last_decision()->reason, RetentionReason::kCachedOverBound);
  EXPECT_EQ(bound.last_decision()->cached, 101);
  EXPECT_TRUE(bound.last_decision()->released);
  EXPECT_FALSE(bound.release_if_needed()) << "one excess is released once";
}

TEST_F(HostCacheBoundTest, ABoundOfZeroKeepsNoByte) {
  HostCacheBound none(kType, 0);
  allocator.held = 1;
  EXPECT_TRUE(none.release_if_needed());
  EXPECT_FALSE(none.release_if_needed());
}

TEST_F(HostCacheBoundTest, MoreInUseThanHeldCachesNothing) {
  allocator.in_use = 500;
  allocator.held = 400;
  EXPECT_FALSE(bound.release_if_needed());
  EXPECT_EQ(bound.last_decision()->cached, 0);
}

TEST_F(HostCacheBoundTest, CountsForItselfAndTellsItsOwnEvent) {
  EXPECT_FALSE(bound.last_decision().has_value());
  (void)releases_with(10);
  (void)releases_with(300);
  const HostCacheCounters counters = bound.counters();
  EXPECT_EQ(counters.decisions, 2);
  EXPECT_EQ(counters.releases, 1);
  EXPECT_EQ(counters.release_failures, 0);
  const auto events = sink->events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, EventKind::kHostCacheDecided);
  EXPECT_EQ(events[0].reason, "within_bounds");
  EXPECT_EQ(events[0].bytes, 10);
  EXPECT_EQ(events[0].device, c10::Device(kType));
  EXPECT_EQ(events[1].reason, "cached_over_bound");
  EXPECT_EQ(events[1].bytes, 300);
  const std::map<std::string, std::int64_t> figures{
      {"cached", 300}, {"bound", 100}, {"released", 1}};
  EXPECT_EQ(events[1].figures, figures);
}

TEST_F(HostCacheBoundTest, FiguresThatCannotBeReadReleaseAndWarnOnce) {
  allocator.at_query = [] { throw 42; };
  EXPECT_TRUE(bound.release_if_needed());
  EXPECT_TRUE(bound.release_if_needed());
  EXPECT_EQ(bound.last_decision()->reason, RetentionReason::kTelemetryFailed);
  EXPECT_FALSE(bound.last_decision()->cached.has_value());
  EXPECT_EQ(bound.counters().telemetry_failures, 2);
  const std::map<std::string, std::int64_t> figures{{"bound", 100}, {"released", 1}};
  EXPECT_EQ(sink->events(EventKind::kHostCacheDecided)[0].figures, figures);
  ASSERT_EQ(sink->count(EventKind::kTelemetryFailed), 1U);
  EXPECT_EQ(sink->events(EventKind::kTelemetryFailed)[0].reason, "host_allocator_stats");
  EXPECT_EQ(sink->events(EventKind::kTelemetryFailed)[0].message,
            "an exception that is not a std::exception; every decision will release the cache "
            "until it is cured");
}

TEST_F(HostCacheBoundTest, NegativeFiguresAreImpossible) {
  allocator.held = -1;
  EXPECT_TRUE(bound.release_if_needed());
  ASSERT_EQ(sink->count(EventKind::kTelemetryFailed), 1U);
  EXPECT_EQ(sink->events(EventKind::kTelemetryFailed)[0].message,
            "pinned allocator: impossible figure: -1 bytes held, 0 in use; every decision will "
            "release the cache until it is cured");
  allocator.held = 0;
  allocator.in_use = -1;
  EXPECT_TRUE(bound.release_if_needed());
  EXPECT_EQ(bound.counters().telemetry_failures, 2);
  allocator.held = 0;
  allocator.in_use = 1;
  EXPECT_TRUE(bound.release_if_needed()) << "nothing is held while something is in use";
  EXPECT_EQ(bound.counters().telemetry_failures, 3);
}

TEST_F(HostCacheBoundTest, AFailedReleaseIsThrownAndRecorded) {
  allocator.at_release = [] { throw std::runtime_error("cudaFreeHost failed"); };
  allocator.held = 101;
  EXPECT_THROW(bound.release_if_needed(), std::runtime_error);
  EXPECT_FALSE(bound.last_decision()->released);
  EXPECT_EQ(bound.counters().release_failures, 1);
  EXPECT_EQ(bound.counters().releases, 0);
  ASSERT_EQ(sink->count(EventKind::kReleaseFailed), 1U);
  EXPECT_EQ(sink->events(EventKind::kReleaseFailed)[0].message, "cudaFreeHost failed");
}

TEST_F(HostCacheBoundTest, TwoThreadsReleaseOneExcessOnce) {
  std::latch releasing(1);
  std::latch go_on(1);
  std::latch second_started(1);
  allocator.at_release = [&] {
    releasing.count_down();
    go_on.wait();
  };
  allocator.held = 101;
  std::thread first([&] { bound.release_if_needed(); });
  releasing.wait();
  EXPECT_EQ(bound.counters().decisions, 0) << "looking does not wait";
  std::thread second([&] {
    second_started.count_down();
    bound.release_if_needed();
  });
  second_started.wait();
  go_on.count_down();
  first.join();
  second.join();
  EXPECT_EQ(allocator.releases, 1);
  EXPECT_EQ(bound.counters().decisions, 2);
}

TEST_F(HostCacheBoundTest, WrongArgumentsAreRefusedByName) {
  const auto error_of = [](c10::DeviceType type, std::int64_t bytes) -> std::string {
    try {
      const HostCacheBound made(type, bytes);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(error_of(kType, -1), "host cache bound: max_cached_bytes must not be negative, got -1");
  EXPECT_EQ(error_of(c10::DeviceType::CPU, 1),
            "host cache bound: no pinned host allocator is registered for device type cpu");
  EXPECT_EQ(error_of(c10::DeviceType::HIP, 1),
            "host cache bound: no pinned host allocator is registered for device type hip");
  EXPECT_EQ(error_of(kType, 0), "accepted");
}

// --- as an option of a device's cache ---

class CacheWithHostBoundTest : public HostCacheBoundTest {
 protected:
  const std::shared_ptr<HostCacheBound> host = std::make_shared<HostCacheBound>(kType, 100);
  const std::unique_ptr<BoundedAllocatorCache> cache =
      cache_of(std::make_shared<FixedRetention>(), {.host_cache = host});
};

TEST_F(CacheWithHostBoundTest, EachDecisionOnTheDeviceIsFollowedByOneOnTheHost) {
  allocator.held = 101;
  EXPECT_FALSE(releases(*cache, 10)) << "it is the device's cache that is told of";
  EXPECT_EQ(allocator.releases, 1);
  EXPECT_EQ(host->counters().releases, 1);
  EXPECT_EQ(cache->counters().releases, 0);
  EXPECT_TRUE(releases(*cache, 30));
  EXPECT_EQ(host->counters().decisions, 2);
  EXPECT_EQ(allocator.releases, 1);
}

TEST_F(CacheWithHostBoundTest, AForcedReleaseLeavesTheHostAlone) {
  allocator.held = 101;
  EXPECT_TRUE(cache->release_if_needed(/*force=*/true));
  EXPECT_TRUE(cache->release_forced());
  EXPECT_EQ(host->counters().decisions, 0);
}

TEST_F(CacheWithHostBoundTest, WithoutTheOptionTheHostIsNotEvenAsked) {
  allocator.held = 101;
  (void)releases(*cache_of(std::make_shared<FixedRetention>()), 10);
  EXPECT_EQ(allocator.queries, 0);
}

TEST_F(CacheWithHostBoundTest, AnErrorOfTheHostLeavesAfterTheDevicesDecision) {
  allocator.at_release = [] { throw std::runtime_error("cudaFreeHost failed"); };
  allocator.held = 101;
  find(30);
  EXPECT_THROW(cache->release_if_needed(), std::runtime_error);
  EXPECT_TRUE(cache->last_decision()->released);
  EXPECT_EQ(cache->counters().release_failures, 0);
}

}  // namespace
}  // namespace offstage
