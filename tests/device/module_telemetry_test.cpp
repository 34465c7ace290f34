// SPDX-License-Identifier: Apache-2.0
#include "fake_device_module.hpp"

#include <offstage/base/error.hpp>
#include <offstage/device/module_telemetry.hpp>

#include <gtest/gtest.h>

#include <memory>

namespace offstage {
namespace {

const c10::Device kDevice(c10::DeviceType::PrivateUse1, 2);

TEST(ModuleTelemetryTest, HandsOverTheFiguresOfTheModuleForTheIndexAsked) {
  const auto module = std::make_shared<FakeDeviceModule>(MemoryFigures{
      .allocator = {.reserved = 30, .allocated = 10}, .device = {.free = 60, .total = 100}});
  ModuleTelemetry telemetry(module);
  EXPECT_EQ(telemetry.allocator_stats(kDevice).reserved, 30);
  EXPECT_EQ(module->last_index, 2);
  EXPECT_EQ(telemetry.device_memory({c10::DeviceType::PrivateUse1, 1}).free, 60);
  EXPECT_EQ(module->last_index, 1);
}

TEST(ModuleTelemetryTest, ReleasesThroughTheModule) {
  const auto module = std::make_shared<FakeDeviceModule>();
  ModuleTelemetry telemetry(module);
  telemetry.release_cached(kDevice);
  EXPECT_EQ(module->fake.calls().release_cached, 1);
  EXPECT_EQ(module->last_index, 2);
}

TEST(ModuleTelemetryTest, PassesErrorsOfTheModuleThrough) {
  const auto module = std::make_shared<FakeDeviceModule>();
  module->fake.fail_allocator_stats(testing::FakeFailure::kNotStd);
  ModuleTelemetry telemetry(module);
  EXPECT_THROW((void)telemetry.allocator_stats(kDevice), int);
}

TEST(ModuleTelemetryTest, RefusesANullModule) {
  EXPECT_THROW(ModuleTelemetry(nullptr), InvalidArgument);
}

}  // namespace
}  // namespace offstage
