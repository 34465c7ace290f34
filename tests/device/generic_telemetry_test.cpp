// SPDX-License-Identifier: Apache-2.0
#include "fake_device_allocator.hpp"

#include <offstage/base/error.hpp>
#include <offstage/device/generic_telemetry.hpp>
#include <offstage/device/telemetry_figures.hpp>

#include <c10/util/Exception.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

namespace offstage {
namespace {

using ::testing::HasSubstr;

constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
constexpr auto kSmallPool = static_cast<size_t>(c10::CachingAllocator::StatType::SMALL_POOL);
const c10::Device kDevice(c10::DeviceType::PrivateUse1, 2);

std::string error_of(const std::function<void(GenericTelemetry&)>& call) {
  GenericTelemetry telemetry;
  try {
    call(telemetry);
  } catch (const TelemetryError& error) {
    return error.what();
  }
  return "no TelemetryError";
}

class GenericTelemetryTest : public ::testing::Test {
 protected:
  GenericTelemetryTest() : allocator(installed_allocator()) {
    allocator.stats = {};
    allocator.memory = {0, 0};
    allocator.has_memory_info = true;
    allocator.releases = 0;
  }

  FakeDeviceAllocator& allocator;
  GenericTelemetry telemetry;
};

TEST_F(GenericTelemetryTest, ReadsTheAggregateFiguresOfTheIndexAsked) {
  allocator.stats.reserved_bytes[kAggregate].current = 300;
  allocator.stats.reserved_bytes[kSmallPool].current = 1;
  allocator.stats.allocated_bytes[kAggregate].current = 100;
  allocator.stats.allocated_bytes[kAggregate].peak = 999;
  allocator.stats.inactive_split_bytes[kAggregate].current = 50;
  const AllocatorStats stats = telemetry.allocator_stats(kDevice);
  EXPECT_EQ(stats.reserved, 300);
  EXPECT_EQ(stats.allocated, 100);
  EXPECT_EQ(stats.inactive_split, 50);
  EXPECT_EQ(allocator.last_index, 2);
}

TEST_F(GenericTelemetryTest, ReadsFreeAndTotal) {
  allocator.memory = {60, 100};
  const DeviceMemory memory = telemetry.device_memory(kDevice);
  EXPECT_EQ(memory.free, 60);
  EXPECT_EQ(memory.total, 100);
  EXPECT_EQ(allocator.last_index, 2);
}

TEST_F(GenericTelemetryTest, InitialisesTheDeviceBeforeItReads) {
  (void)telemetry.allocator_stats(kDevice);
  EXPECT_EQ(FakeHooks::initialisations, 1);
  (void)telemetry.device_memory(kDevice);
  EXPECT_EQ(FakeHooks::initialisations, 1);
}

TEST_F(GenericTelemetryTest, ReleasesWithTheDeviceCurrentAndRestoresTheCallers) {
  FakeGuard::setDeviceIndex(0);
  telemetry.release_cached(kDevice);
  EXPECT_EQ(allocator.releases, 1);
  EXPECT_EQ(allocator.device_at_release, 2);
  EXPECT_EQ(FakeGuard::getDeviceIndex(), 0);
}

TEST_F(GenericTelemetryTest, AnAllocatorWithoutFreeAndTotalReportsThatItself) {
  allocator.has_memory_info = false;
  EXPECT_THROW((void)telemetry.device_memory(kDevice), c10::NotImplementedError);
}

TEST_F(GenericTelemetryTest, SizesThatNoByteCountHoldsAreRefusedAndNotTakenForNegative) {
  allocator.memory = {0, std::numeric_limits<size_t>::max()};
  try {
    (void)read_device_memory(telemetry, kDevice);
    FAIL() << "an impossible total was believed";
  } catch (const TelemetryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("total is 9223372036854775807"));
  }
}

TEST_F(GenericTelemetryTest, ADeviceWithoutIndexIsRefused) {
  const c10::Device no_index(c10::DeviceType::PrivateUse1);
  EXPECT_THROW((void)telemetry.allocator_stats(no_index), InvalidArgument);
  EXPECT_THROW((void)telemetry.device_memory(no_index), InvalidArgument);
  EXPECT_THROW(telemetry.release_cached(no_index), InvalidArgument);
}

TEST(GenericTelemetryErrorTest, ATypeWhoseAllocatorHasNoStatisticsIsReportedWithARemedy) {
  const c10::Device cpu(c10::DeviceType::CPU, 0);
  const std::string error =
      error_of([&](GenericTelemetry& telemetry) { (void)telemetry.allocator_stats(cpu); });
  EXPECT_THAT(error, HasSubstr("the allocator of device type cpu has no generic statistics"));
  EXPECT_THAT(error, HasSubstr("register a backend"));
  EXPECT_EQ(error_of([&](auto& telemetry) { (void)telemetry.device_memory(cpu); }), error);
  EXPECT_EQ(error_of([&](auto& telemetry) { telemetry.release_cached(cpu); }), error);
}

TEST(GenericTelemetryErrorTest, ATypeWithoutAnAllocatorIsReported) {
  const c10::Device xpu(c10::DeviceType::XPU, 0);
  EXPECT_THAT(error_of([&](auto& telemetry) { (void)telemetry.allocator_stats(xpu); }),
              HasSubstr("device type xpu has no allocator registered"));
}

TEST(GenericTelemetryErrorTest, ATypeThatCannotBeInitialisedIsReportedWithTheCause) {
  // An allocator without hooks behind it: LibTorch has none for an IPU.
  static FakeDeviceAllocator allocator;
  c10::SetAllocator(c10::DeviceType::IPU, &allocator);
  const c10::Device ipu(c10::DeviceType::IPU, 0);
  EXPECT_THAT(error_of([&](auto& telemetry) { (void)telemetry.allocator_stats(ipu); }),
              HasSubstr("device type ipu cannot be initialised: "));
}

}  // namespace
}  // namespace offstage
