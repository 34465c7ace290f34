// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/testing/fake_telemetry.hpp>

#include <gtest/gtest.h>

#include <stdexcept>

namespace offstage {
namespace {

using testing::FakeFailure;
using testing::FakeTelemetry;

const c10::Device kDevice(c10::DeviceType::CUDA, 0);

TEST(FakeTelemetryTest, SaysWhatItWasToldToSay) {
  FakeTelemetry fake;
  fake.set_figures(
      {.allocator = {.reserved = 30, .allocated = 10}, .device = {.free = -5, .total = 100}});
  EXPECT_EQ(fake.allocator_stats(kDevice).reserved, 30);
  EXPECT_EQ(fake.device_memory(kDevice).free, -5);
}

TEST(FakeTelemetryTest, CountsEveryCallOfAKindFailedOnesIncluded) {
  FakeTelemetry fake;
  (void)fake.allocator_stats(kDevice);
  (void)fake.device_memory(kDevice);
  fake.fail_device_memory(FakeFailure::kStdException);
  EXPECT_THROW((void)fake.device_memory(kDevice), std::runtime_error);
  fake.release_cached(kDevice);
  EXPECT_EQ(fake.calls(), (testing::FakeTelemetryCalls{
                              .allocator_stats = 1, .device_memory = 2, .release_cached = 1}));
  EXPECT_EQ(fake.calls().queries(), 3);
}

TEST(FakeTelemetryTest, FailsInTheWayAskedUntilToldOtherwise) {
  FakeTelemetry fake;
  fake.fail_allocator_stats(FakeFailure::kTelemetryError);
  EXPECT_THROW((void)fake.allocator_stats(kDevice), TelemetryError);
  fake.fail_allocator_stats(FakeFailure::kNotStd);
  EXPECT_THROW((void)fake.allocator_stats(kDevice), int);
  fake.fail_allocator_stats(FakeFailure::kNone);
  EXPECT_NO_THROW((void)fake.allocator_stats(kDevice));
}

TEST(FakeTelemetryTest, AReleaseReturnsWhatIsCachedButNotSplitSegments) {
  FakeTelemetry fake({.allocator = {.reserved = 50, .allocated = 10, .inactive_split = 15},
                      .device = {.free = 20, .total = 100}});
  fake.release_cached(kDevice);
  EXPECT_EQ(fake.figures().allocator.reserved, 25);
  EXPECT_EQ(fake.figures().allocator.allocated, 10);
  EXPECT_EQ(fake.figures().device.free, 45);
}

TEST(FakeTelemetryTest, AFailedReleaseReturnsNothing) {
  FakeTelemetry fake(
      {.allocator = {.reserved = 50, .allocated = 10}, .device = {.free = 20, .total = 100}});
  fake.fail_release(FakeFailure::kStdException);
  EXPECT_THROW(fake.release_cached(kDevice), std::runtime_error);
  EXPECT_EQ(fake.figures().allocator.reserved, 50);
  EXPECT_EQ(fake.figures().device.free, 20);
}

}  // namespace
}  // namespace offstage
