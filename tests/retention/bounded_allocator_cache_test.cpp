// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>
#include <offstage/testing/fake_telemetry.hpp>
#include <offstage/testing/recording_sink.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

namespace offstage {
namespace {

using testing::FakeFailure;
using testing::FakeTelemetry;
using testing::FakeTelemetryCalls;
using ::testing::HasSubstr;
using testing::RecordingSink;

const c10::Device kDevice(c10::DeviceType::CUDA, 1);

MemoryFigures figures(std::int64_t reserved, std::int64_t allocated, std::int64_t free,
                      std::int64_t total = 100) {
  return {.allocator = {.reserved = reserved, .allocated = allocated},
          .device = {.free = free, .total = total}};
}

class BoundedAllocatorCacheTest : public ::testing::Test {
 protected:
  const std::shared_ptr<FakeTelemetry> telemetry = std::make_shared<FakeTelemetry>();
  const std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
  BoundedAllocatorCache cache{kDevice, telemetry, std::make_shared<FixedRetention>(), sink};

  int releases() const { return telemetry->calls().release_cached; }
  RetentionReason last_reason() const { return cache.last_decision()->reason; }
};

// The matrix of the fixed policy, through the cache, with the default policy.
TEST_F(BoundedAllocatorCacheTest, KeepsWithinBoundsAndReleasesBeyondThem) {
  BoundedAllocatorCache defaulted(kDevice, telemetry);
  telemetry->set_figures(figures(10, 0, 80));
  EXPECT_FALSE(defaulted.release_if_needed());
  EXPECT_EQ(releases(), 0);
  telemetry->set_figures(figures(30, 0, 80));
  EXPECT_TRUE(defaulted.release_if_needed());
  EXPECT_EQ(releases(), 1);
  telemetry->set_figures(figures(10, 0, 4));
  EXPECT_TRUE(defaulted.release_if_needed());
  EXPECT_EQ(releases(), 2);
}

TEST_F(BoundedAllocatorCacheTest, KeepingReadsEachFigureOnceAndDoesNothingElse) {
  telemetry->set_figures(figures(25, 0, 5));
  EXPECT_FALSE(cache.release_if_needed());
  EXPECT_EQ(telemetry->calls(),
            (FakeTelemetryCalls{.allocator_stats = 1, .device_memory = 1, .release_cached = 0}));
}

TEST_F(BoundedAllocatorCacheTest, ForceReadsNothingAndReleases) {
  telemetry->fail_allocator_stats(FakeFailure::kStdException);
  telemetry->fail_device_memory(FakeFailure::kStdException);
  EXPECT_TRUE(cache.release_if_needed(/*force=*/true));
  EXPECT_EQ(telemetry->calls(),
            (FakeTelemetryCalls{.allocator_stats = 0, .device_memory = 0, .release_cached = 1}));
  EXPECT_EQ(last_reason(), RetentionReason::kForced);
  EXPECT_FALSE(cache.last_decision()->figures.has_value());
  EXPECT_EQ(sink->count(EventKind::kTelemetryFailed), 0U);
}

TEST_F(BoundedAllocatorCacheTest, TheDecisionHoldsReasonFiguresBoundAndOutcome) {
  EXPECT_FALSE(cache.last_decision().has_value());
  telemetry->set_figures(figures(60, 20, 30));
  cache.release_if_needed();
  const RetentionDecision decision = *cache.last_decision();
  EXPECT_EQ(decision.reason, RetentionReason::kCachedOverBound);
  ASSERT_TRUE(decision.figures.has_value());
  EXPECT_EQ(decision.figures->allocator.reserved, 60);
  EXPECT_EQ(decision.figures->allocator.allocated, 20);
  EXPECT_EQ(decision.figures->cached(), 40);
  EXPECT_EQ(decision.figures->device.free, 30);
  EXPECT_EQ(decision.figures->device.total, 100);
  EXPECT_EQ(decision.bound, 25);
  EXPECT_TRUE(decision.released);
  EXPECT_GE(decision.duration.count(), 0);
}

TEST_F(BoundedAllocatorCacheTest, EveryDecisionIsAnEventWithReasonAndCachedBytes) {
  telemetry->set_figures(figures(10, 0, 80));
  cache.release_if_needed();
  telemetry->set_figures(figures(60, 20, 30));
  cache.release_if_needed();
  cache.release_if_needed(/*force=*/true);
  const auto events = sink->events();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].kind, EventKind::kRetentionDecided);
  EXPECT_EQ(events[0].device, kDevice);
  EXPECT_EQ(events[0].reason, "within_bounds");
  EXPECT_EQ(events[0].bytes, 10);
  EXPECT_EQ(events[1].reason, "cached_over_bound");
  EXPECT_EQ(events[1].bytes, 40);
  EXPECT_EQ(events[2].reason, "forced");
  EXPECT_EQ(events[2].bytes, 0);
}

TEST_F(BoundedAllocatorCacheTest, TheEventOfADecisionHasAllThatItWasDecidedFrom) {
  const StagedBytesToken staged = cache.attach(7);
  telemetry->set_figures({.allocator = {.reserved = 60, .allocated = 20, .inactive_split = 5},
                          .device = {.free = 30, .total = 100}});
  cache.release_if_needed();
  const std::map<std::string, std::int64_t> expected{
      {"cached", 40}, {"releasable", 35}, {"reserved", 60},      {"allocated", 20},
      {"free", 30},   {"total", 100},     {"inactive_split", 5}, {"bound", 25},
      {"peak", 0},    {"staged", 7},      {"released", 1}};
  EXPECT_EQ(sink->events()[0].figures, expected);
  telemetry->set_figures(figures(10, 0, 80));
  cache.release_if_needed();
  EXPECT_EQ(sink->events()[1].figures.at("released"), 0);
}

TEST_F(BoundedAllocatorCacheTest, TheEventOfAForcedDecisionHasNoFiguresThatWereNotRead) {
  cache.release_if_needed(/*force=*/true);
  const std::map<std::string, std::int64_t> expected{
      {"bound", 0}, {"peak", 0}, {"staged", 0}, {"released", 1}};
  EXPECT_EQ(sink->events()[0].figures, expected);
}

TEST_F(BoundedAllocatorCacheTest, CountsDecisionsByReason) {
  telemetry->set_figures(figures(10, 0, 80));
  cache.release_if_needed();
  cache.release_if_needed();
  telemetry->set_figures(figures(10, 0, 4));
  cache.release_if_needed();
  cache.release_if_needed(/*force=*/true);
  const RetentionCounters counters = cache.counters();
  EXPECT_EQ(counters.decisions(RetentionReason::kWithinBounds), 2);
  EXPECT_EQ(counters.decisions(RetentionReason::kLowFree), 1);
  EXPECT_EQ(counters.decisions(RetentionReason::kForced), 1);
  EXPECT_EQ(counters.decisions(RetentionReason::kCachedOverBound), 0);
  EXPECT_EQ(counters.releases, 2);
}

class UnreadableTest : public BoundedAllocatorCacheTest,
                       public ::testing::WithParamInterface<FakeFailure> {};

TEST_P(UnreadableTest, AllocatorFiguresRelease) {
  telemetry->fail_allocator_stats(GetParam());
  EXPECT_TRUE(cache.release_if_needed());
  EXPECT_EQ(last_reason(), RetentionReason::kTelemetryFailed);
  EXPECT_FALSE(cache.last_decision()->figures.has_value());
  EXPECT_EQ(releases(), 1);
}

TEST_P(UnreadableTest, DeviceMemoryReleases) {
  telemetry->set_figures(figures(10, 0, 80));
  telemetry->fail_device_memory(GetParam());
  EXPECT_TRUE(cache.release_if_needed());
  EXPECT_EQ(last_reason(), RetentionReason::kTelemetryFailed);
  EXPECT_EQ(releases(), 1);
}

INSTANTIATE_TEST_SUITE_P(AllFailures, UnreadableTest,
                         ::testing::Values(FakeFailure::kTelemetryError, FakeFailure::kStdException,
                                           FakeFailure::kNotStd));

TEST_F(BoundedAllocatorCacheTest, TheFirstFailureOfEachKindWarnsWithItsCauseAndAllAreCounted) {
  telemetry->fail_allocator_stats(FakeFailure::kStdException);
  for (int i = 0; i < 3; ++i) cache.release_if_needed();
  ASSERT_EQ(sink->count(EventKind::kTelemetryFailed), 1U);
  EXPECT_EQ(sink->events(EventKind::kTelemetryFailed)[0].reason, "allocator_stats");
  EXPECT_EQ(sink->events(EventKind::kTelemetryFailed)[0].message,
            "fake: allocator statistics are unavailable; every decision will release the cache "
            "until it is cured");
  EXPECT_EQ(cache.counters().failures(TelemetryKind::kAllocatorStats), 3);

  telemetry->fail_allocator_stats(FakeFailure::kNone);
  telemetry->set_figures(figures(10, 0, 80));
  telemetry->fail_device_memory(FakeFailure::kNotStd);
  for (int i = 0; i < 2; ++i) cache.release_if_needed();
  ASSERT_EQ(sink->count(EventKind::kTelemetryFailed), 2U);
  EXPECT_EQ(sink->events(EventKind::kTelemetryFailed)[1].reason, "device_memory");
  EXPECT_EQ(sink->events(EventKind::kTelemetryFailed)[1].message,
            "an exception that is not a std::exception; every decision will release the cache "
            "until it is cured");
  EXPECT_EQ(cache.counters().failures(TelemetryKind::kDeviceMemory), 2);
  EXPECT_EQ(cache.counters().decisions(RetentionReason::kTelemetryFailed), 5);
}

TEST_F(BoundedAllocatorCacheTest, CachesOfTwoDevicesWarnEachForItself) {
  BoundedAllocatorCache other(c10::Device(c10::DeviceType::CUDA, 0), telemetry,
                              std::make_shared<FixedRetention>(), sink);
  telemetry->fail_allocator_stats(FakeFailure::kStdException);
  cache.release_if_needed();
  other.release_if_needed();
  ASSERT_EQ(sink->count(EventKind::kTelemetryFailed), 2U);
  EXPECT_EQ(sink->events(EventKind::kTelemetryFailed)[0].device.index(), 1);
  EXPECT_EQ(sink->events(EventKind::kTelemetryFailed)[1].device.index(), 0);
}

TEST_F(BoundedAllocatorCacheTest, ImpossibleFiguresAreFailuresAndNotZeros) {
  const MemoryFigures impossible[] = {
      figures(0, 5, 80),        figures(-1, 0, 80),
      figures(10, -1, 80),      figures(10, 0, 0, 0),
      figures(10, 0, -1),       figures(10, 0, 101),
      figures(10, 0, 80, -100), figures(10, 0, 80, (std::int64_t{1} << 53) + 1),
  };
  for (const MemoryFigures& each : impossible) {
    telemetry->set_figures(each);
    EXPECT_TRUE(cache.release_if_needed());
    EXPECT_EQ(last_reason(), RetentionReason::kTelemetryFailed);
  }
}

TEST_F(BoundedAllocatorCacheTest, ATotalOfTwoToThe53IsBelieved) {
  telemetry->set_figures(figures(10, 0, std::int64_t{1} << 52, std::int64_t{1} << 53));
  EXPECT_FALSE(cache.release_if_needed());
  EXPECT_EQ(cache.last_decision()->bound, std::int64_t{1} << 51);
}

TEST_F(BoundedAllocatorCacheTest, AFailedReleaseIsThrownAndRecorded) {
  telemetry->set_figures(figures(30, 0, 50));
  telemetry->fail_release(FakeFailure::kStdException);
  EXPECT_THROW(cache.release_if_needed(), std::runtime_error);
  EXPECT_EQ(last_reason(), RetentionReason::kCachedOverBound);
  EXPECT_FALSE(cache.last_decision()->released);
  EXPECT_EQ(cache.counters().release_failures, 1);
  EXPECT_EQ(cache.counters().releases, 0);
  ASSERT_EQ(sink->count(EventKind::kReleaseFailed), 1U);
  EXPECT_EQ(sink->events(EventKind::kReleaseFailed)[0].reason, "cached_over_bound");
  EXPECT_EQ(sink->events(EventKind::kReleaseFailed)[0].message,
            "fake: the cache cannot be released");
}

TEST_F(BoundedAllocatorCacheTest, AFailedReleaseIsThrownWhenForcedAsWell) {
  telemetry->fail_release(FakeFailure::kNotStd);
  EXPECT_THROW(cache.release_if_needed(/*force=*/true), int);
  EXPECT_EQ(sink->count(EventKind::kReleaseFailed), 1U);
}

TEST_F(BoundedAllocatorCacheTest, OnAFailingPathAFailedReleaseIsRecordedAndDropped) {
  telemetry->fail_release(FakeFailure::kNotStd);
  EXPECT_FALSE(cache.release_forced());
  EXPECT_EQ(cache.counters().release_failures, 1);
  EXPECT_EQ(cache.counters().decisions(RetentionReason::kForced), 1);
  ASSERT_EQ(sink->count(EventKind::kReleaseFailed), 1U);
  EXPECT_EQ(sink->events(EventKind::kReleaseFailed)[0].message,
            "an exception that is not a std::exception");
  telemetry->fail_release(FakeFailure::kNone);
  EXPECT_TRUE(cache.release_forced());
  EXPECT_EQ(cache.counters().releases, 1);
  EXPECT_EQ(telemetry->calls().queries(), 0);
}

TEST_F(BoundedAllocatorCacheTest, IsUsableAfterAFailure) {
  telemetry->set_figures(figures(30, 0, 50));
  telemetry->fail_release(FakeFailure::kStdException);
  EXPECT_THROW(cache.release_if_needed(), std::runtime_error);
  telemetry->fail_release(FakeFailure::kNone);
  EXPECT_TRUE(cache.release_if_needed());
  EXPECT_FALSE(cache.release_if_needed()) << "one excess is released once";
}

TEST_F(BoundedAllocatorCacheTest, NeverReleasesEveryTimeWithoutTelemetry) {
  telemetry->fail_allocator_stats(FakeFailure::kStdException);
  BoundedAllocatorCache never(kDevice, telemetry, std::make_shared<NeverRetention>(), sink);
  EXPECT_TRUE(never.release_if_needed());
  EXPECT_TRUE(never.release_if_needed());
  EXPECT_EQ(never.last_decision()->reason, RetentionReason::kPolicyReleases);
  EXPECT_EQ(telemetry->calls().queries(), 0);
}

TEST_F(BoundedAllocatorCacheTest, AlwaysKeepsWithoutTelemetryButObeysForce) {
  telemetry->set_figures(figures(100, 0, 0));
  BoundedAllocatorCache always(kDevice, telemetry, std::make_shared<AlwaysRetention>(), sink);
  EXPECT_FALSE(always.release_if_needed());
  EXPECT_EQ(always.last_decision()->reason, RetentionReason::kPolicyRetains);
  EXPECT_EQ(telemetry->calls().queries(), 0);
  EXPECT_TRUE(always.release_if_needed(/*force=*/true));
}

// Encoder, transformer and decoder in turn: what flushing at every boundary costs.
TEST_F(BoundedAllocatorCacheTest, TenRoundsOfThreeComponentsWithinBoundsReleaseNothing) {
  const auto run_ten_rounds = [&](BoundedAllocatorCache& of) {
    const int before = releases();
    for (int boundary = 0; boundary < 30; ++boundary) {
      telemetry->set_figures(figures(20, 0, 70));
      of.release_if_needed();
    }
    return releases() - before;
  };
  BoundedAllocatorCache never(kDevice, telemetry, std::make_shared<NeverRetention>());
  EXPECT_EQ(run_ten_rounds(cache), 0);
  EXPECT_EQ(run_ten_rounds(never), 30);
}

TEST(BoundedAllocatorCacheArgumentTest, ADeviceWithoutAnIndexIsRefusedByName) {
  const auto telemetry = std::make_shared<FakeTelemetry>();
  try {
    const BoundedAllocatorCache cache(c10::Device(c10::DeviceType::CUDA), telemetry);
    FAIL() << "a device without an index was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "bounded allocator cache: device must have an explicit index, got cuda");
  }
}

TEST(BoundedAllocatorCacheArgumentTest, NullIsRefusedByName) {
  const auto error_of = [](std::shared_ptr<TelemetryBackend> backend,
                           std::shared_ptr<const RetentionPolicy> policy) -> std::string {
    try {
      const BoundedAllocatorCache cache(kDevice, std::move(backend), std::move(policy));
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(error_of(nullptr, std::make_shared<FixedRetention>()),
              HasSubstr("backend must not be null"));
  EXPECT_THAT(error_of(std::make_shared<FakeTelemetry>(), nullptr),
              HasSubstr("policy must not be null"));
}

}  // namespace
}  // namespace offstage
