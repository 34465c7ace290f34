// SPDX-License-Identifier: Apache-2.0
#include "fake_cuda_allocator.hpp"

#include <offstage/base/error.hpp>
#include <offstage/base/number_text.hpp>
#include <offstage/device/cuda_telemetry.hpp>
#include <offstage/device/telemetry_registry.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>

namespace offstage {
namespace {

using ::testing::HasSubstr;

constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
const c10::Device kDevice(c10::DeviceType::CUDA, 1);

class CudaTelemetryTest : public ::testing::Test {
 protected:
  CudaTelemetryTest() {
    allocator.stats = {};
    allocator.memory = {800, 1000};
    allocator.has_memory_info = true;
    allocator.fraction = 1.0;
    allocator.backend = "native";
    allocator.releases = 0;
    allocator.stats_queries = 0;
  }

  void hold(std::int64_t reserved, std::int64_t allocated) const {
    allocator.stats.reserved_bytes[kAggregate].current = reserved;
    allocator.stats.allocated_bytes[kAggregate].current = allocated;
  }

  FakeCudaAllocator& allocator = installed_cuda_allocator();
  const std::shared_ptr<CudaTelemetry> telemetry = std::make_shared<CudaTelemetry>();
};

TEST_F(CudaTelemetryTest, WithoutAShareFreeIsTheDevicesAndNothingElseIsAsked) {
  hold(150, 50);
  const DeviceMemory memory = telemetry->device_memory(kDevice);
  EXPECT_EQ(memory.free, 800);
  EXPECT_EQ(memory.total, 1000);
  EXPECT_EQ(allocator.stats_queries, 0);
  EXPECT_EQ(allocator.last_index, 1);
}

TEST_F(CudaTelemetryTest, WithAShareFreeIsWhatTheAllocatorMayStillTake) {
  allocator.fraction = 0.5;
  hold(150, 50);
  EXPECT_EQ(telemetry->device_memory(kDevice).free, 350);
  EXPECT_EQ(telemetry->device_memory(kDevice).total, 1000);
}

TEST_F(CudaTelemetryTest, AShareDoesNotMakeMoreOfWhatTheDeviceHas) {
  allocator.fraction = 0.5;
  allocator.memory = {300, 1000};  // Another process holds the rest.
  hold(150, 50);
  EXPECT_EQ(telemetry->device_memory(kDevice).free, 300);
}

TEST_F(CudaTelemetryTest, AShareThatIsUsedUpLeavesNothingAndNeverLess) {
  allocator.fraction = 0.5;
  hold(500, 500);
  EXPECT_EQ(telemetry->device_memory(kDevice).free, 0);
  hold(700, 500);  // Reserved before the share was set.
  EXPECT_EQ(telemetry->device_memory(kDevice).free, 0);
  allocator.fraction = 0.0;
  hold(0, 0);
  EXPECT_EQ(telemetry->device_memory(kDevice).free, 0);
}

TEST_F(CudaTelemetryTest, TheLimitIsTheProductTruncatedAsTheAllocatorComputesIt) {
  allocator.memory = {999, 999};
  allocator.fraction = 0.3;  // 299.7
  EXPECT_EQ(telemetry->device_memory(kDevice).free, 299);
}

TEST_F(CudaTelemetryTest, AShareThatIsNoNumberIsAnErrorThatNamesIt) {
  for (const double wrong : {std::numeric_limits<double>::quiet_NaN(), -0.25}) {
    allocator.fraction = wrong;
    try {
      (void)telemetry->device_memory(kDevice);
      FAIL() << "a share of " << wrong << " was believed";
    } catch (const TelemetryError& error) {
      EXPECT_THAT(error.what(), HasSubstr("memory fraction of cuda:1 is " + number_text(wrong)));
    }
  }
}

TEST_F(CudaTelemetryTest, CudaMallocAsyncIsToldApartByName) {
  EXPECT_EQ(telemetry->name(), "cuda");
  EXPECT_FALSE(CudaTelemetry::uses_cuda_malloc_async());
  allocator.backend = "cudaMallocAsync";
  EXPECT_EQ(telemetry->name(), "cuda_malloc_async");
  EXPECT_TRUE(CudaTelemetry::uses_cuda_malloc_async());
}

TEST_F(CudaTelemetryTest, UnderCudaMallocAsyncAShareCountsWhatIsHandedOut) {
  allocator.backend = "cudaMallocAsync";
  allocator.fraction = 0.5;
  hold(400, 50);
  EXPECT_EQ(telemetry->device_memory(kDevice).free, 450);
}

TEST_F(CudaTelemetryTest, UnderCudaMallocAsyncNoShareIsALimitBeyondTheDevice) {
  allocator.backend = "cudaMallocAsync";
  allocator.fraction = 18446744073709551615.0 / 1000;  // What that allocator says.
  EXPECT_EQ(telemetry->device_memory(kDevice).free, 800);
}

TEST_F(CudaTelemetryTest, ADecisionUnderAShareReleasesBeforeTheShareIsUsedUp) {
  TelemetryRegistry registry;
  registry.register_backend(c10::DeviceType::CUDA, telemetry);
  BoundedAllocatorCache cache(kDevice, registry.resolve(kDevice.type()));
  hold(460, 400);  // 60 are cached, 800 are free: within bounds.
  EXPECT_FALSE(cache.release_if_needed());
  allocator.fraction = 0.5;  // 40 are left, less than one in twenty.
  EXPECT_TRUE(cache.release_if_needed());
  EXPECT_EQ(cache.last_decision()->reason, RetentionReason::kLowFree);
  EXPECT_EQ(cache.last_decision()->figures->device.free, 40);
  EXPECT_EQ(allocator.releases, 1);
}

TEST_F(CudaTelemetryTest, ADeviceWithoutIndexIsRefused) {
  const c10::Device no_index(c10::DeviceType::CUDA);
  EXPECT_THROW((void)telemetry->allocator_stats(no_index), InvalidArgument);
  EXPECT_THROW((void)telemetry->device_memory(no_index), InvalidArgument);
  EXPECT_THROW(telemetry->release_cached(no_index), InvalidArgument);
}

}  // namespace
}  // namespace offstage
