// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/telemetry_figures.hpp>
#include <offstage/testing/fake_telemetry.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace offstage {
namespace {

using ::testing::HasSubstr;

const c10::Device kDevice(c10::DeviceType::CUDA, 3);

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const TelemetryError& error) {
    return error.what();
  }
  return "no TelemetryError";
}

std::string allocator_error(AllocatorStats stats) {
  testing::FakeTelemetry backend({.allocator = stats, .device = {.free = 1, .total = 1}});
  return error_of([&] { (void)read_allocator_stats(backend, kDevice); });
}

std::string memory_error(DeviceMemory memory) {
  testing::FakeTelemetry backend({.allocator = {}, .device = memory});
  return error_of([&] { (void)read_device_memory(backend, kDevice); });
}

TEST(TelemetryFiguresTest, PossibleFiguresPassUnchanged) {
  testing::FakeTelemetry backend(
      {.allocator = {.reserved = 30, .allocated = 10, .inactive_split = 5},
       .device = {.free = 60, .total = 100}});
  const AllocatorStats stats = read_allocator_stats(backend, kDevice);
  EXPECT_EQ(stats.reserved, 30);
  EXPECT_EQ(stats.allocated, 10);
  EXPECT_EQ(stats.inactive_split, 5);
  const DeviceMemory memory = read_device_memory(backend, kDevice);
  EXPECT_EQ(memory.free, 60);
  EXPECT_EQ(memory.total, 100);
}

TEST(TelemetryFiguresTest, AnIdleAllocatorIsPossible) {
  EXPECT_EQ(allocator_error({.reserved = 0, .allocated = 0}), "no TelemetryError");
}

TEST(TelemetryFiguresTest, NegativeAllocatorFiguresAreNamedWithDeviceBackendAndValue) {
  EXPECT_EQ(allocator_error({.reserved = -1, .allocated = 0}),
            "telemetry of cuda:3 (fake): impossible figure: reserved is -1");
  EXPECT_THAT(allocator_error({.reserved = 1, .allocated = -2}), HasSubstr("allocated is -2"));
  EXPECT_THAT(allocator_error({.reserved = 1, .allocated = 0, .inactive_split = -3}),
              HasSubstr("inactive_split is -3"));
}

TEST(TelemetryFiguresTest, NothingReservedWhileSomethingIsAllocatedIsImpossible) {
  EXPECT_THAT(allocator_error({.reserved = 0, .allocated = 7}),
              HasSubstr("reserved is 0 while allocated is 7"));
}

TEST(TelemetryFiguresTest, LessReservedThanAllocatedIsPossibleAndCountsAsNothingCached) {
  EXPECT_EQ(allocator_error({.reserved = 5, .allocated = 7}), "no TelemetryError");
  const MemoryFigures figures{.allocator = {.reserved = 5, .allocated = 7}, .device = {}};
  EXPECT_EQ(figures.cached(), 0);
}

TEST(TelemetryFiguresTest, ATotalOfZeroOrLessIsImpossible) {
  EXPECT_THAT(memory_error({.free = 0, .total = 0}), HasSubstr("total is 0"));
  EXPECT_THAT(memory_error({.free = 0, .total = -1}), HasSubstr("total is -1"));
}

TEST(TelemetryFiguresTest, FreeMustLieBetweenZeroAndTotal) {
  EXPECT_EQ(memory_error({.free = 0, .total = 100}), "no TelemetryError");
  EXPECT_EQ(memory_error({.free = 100, .total = 100}), "no TelemetryError");
  EXPECT_THAT(memory_error({.free = -1, .total = 100}), HasSubstr("free is -1"));
  EXPECT_THAT(memory_error({.free = 101, .total = 100}), HasSubstr("free is 101"));
}

TEST(TelemetryFiguresTest, ATotalOfTwoToThe53IsTheLargestBelieved) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 53;
  EXPECT_EQ(memory_error({.free = 0, .total = kLimit}), "no TelemetryError");
  EXPECT_THAT(memory_error({.free = 0, .total = kLimit + 1}),
              HasSubstr("total is 9007199254740993"));
  EXPECT_THAT(memory_error({.free = 0, .total = std::numeric_limits<std::int64_t>::max()}),
              HasSubstr("total is 9223372036854775807"));
}

TEST(TelemetryFiguresTest, WhatTheBackendThrowsPassesThrough) {
  testing::FakeTelemetry backend;
  backend.fail_allocator_stats(testing::FakeFailure::kNotStd);
  backend.fail_device_memory(testing::FakeFailure::kStdException);
  EXPECT_THROW((void)read_allocator_stats(backend, kDevice), int);
  EXPECT_THROW((void)read_device_memory(backend, kDevice), std::runtime_error);
}

TEST(TelemetryFiguresTest, KindsHaveStableSpellings) {
  EXPECT_EQ(to_string(TelemetryKind::kAllocatorStats), "allocator_stats");
  EXPECT_EQ(to_string(TelemetryKind::kDeviceMemory), "device_memory");
}

}  // namespace
}  // namespace offstage
