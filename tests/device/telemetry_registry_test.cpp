// SPDX-License-Identifier: Apache-2.0
#include "fake_device_module.hpp"

#include <offstage/base/error.hpp>
#include <offstage/device/telemetry_registry.hpp>
#include <offstage/testing/fake_telemetry.hpp>

#include <c10/core/DeviceType.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace offstage {
namespace {

using testing::FakeTelemetry;
using ::testing::HasSubstr;

// This binary's plug-in device is called "lamp"; npu has a binary of its own.
class TelemetryRegistryTest : public ::testing::Test {
 protected:
  TelemetryRegistryTest() { c10::register_privateuse1_backend("lamp"); }

  const std::shared_ptr<FakeTelemetry> generic = std::make_shared<FakeTelemetry>();
  const std::shared_ptr<FakeTelemetry> other = std::make_shared<FakeTelemetry>();
  TelemetryRegistry registry{generic};
};

TEST_F(TelemetryRegistryTest, TheGenericBackendAnswersForEveryTypeThatIsNotAnNpu) {
  for (int value = 0; value < c10::COMPILE_TIME_MAX_DEVICE_TYPES; ++value) {
    const auto type = static_cast<c10::DeviceType>(value);
    EXPECT_EQ(registry.resolve(type), generic) << value;
  }
  EXPECT_EQ(generic->calls().queries(), 0) << "to resolve asks nothing";
}

TEST_F(TelemetryRegistryTest, WithoutAnArgumentTheGenericBackendIsLibTorchs) {
  EXPECT_EQ(TelemetryRegistry().resolve(c10::DeviceType::CUDA)->name(), "generic");
}

TEST_F(TelemetryRegistryTest, ABackendRegisteredByTypeAnswersForThatTypeOnly) {
  registry.register_backend(c10::DeviceType::CUDA, other);
  EXPECT_EQ(registry.resolve(c10::DeviceType::CUDA), other);
  EXPECT_EQ(registry.resolve(c10::DeviceType::XPU), generic);
}

TEST_F(TelemetryRegistryTest, ABackendRegisteredByNameAnswersForThePlugInOfThatName) {
  registry.register_backend("lamp", other);
  EXPECT_EQ(registry.resolve(c10::DeviceType::PrivateUse1), other);
  EXPECT_EQ(registry.resolve(c10::DeviceType::CUDA), generic);
}

TEST_F(TelemetryRegistryTest, ANameThatThePlugInDoesNotHaveChangesNothing) {
  registry.register_backend("candle", other);
  EXPECT_EQ(registry.resolve(c10::DeviceType::PrivateUse1), generic);
}

TEST_F(TelemetryRegistryTest, AModuleOfAnNpuAnswersForNoOtherPlugIn) {
  registry.register_module("npu", std::make_shared<FakeDeviceModule>());
  EXPECT_EQ(registry.resolve(c10::DeviceType::PrivateUse1), generic);
}

TEST_F(TelemetryRegistryTest, TheNameGoesBeforeTheType) {
  registry.register_backend(c10::DeviceType::PrivateUse1, std::make_shared<FakeTelemetry>());
  registry.register_backend("lamp", other);
  EXPECT_EQ(registry.resolve(c10::DeviceType::PrivateUse1), other);
}

TEST_F(TelemetryRegistryTest, NamesAreComparedWithoutCase) {
  registry.register_backend("LAMP", other);
  EXPECT_EQ(registry.resolve(c10::DeviceType::PrivateUse1), other);
}

TEST_F(TelemetryRegistryTest, ALaterRegistrationReplacesAnEarlierOne) {
  registry.register_backend(c10::DeviceType::CUDA, std::make_shared<FakeTelemetry>());
  registry.register_backend(c10::DeviceType::CUDA, other);
  EXPECT_EQ(registry.resolve(c10::DeviceType::CUDA), other);
}

TEST_F(TelemetryRegistryTest, AModuleAnswersThroughAModuleTelemetry) {
  registry.register_module("lamp", std::make_shared<FakeDeviceModule>());
  EXPECT_EQ(registry.resolve(c10::DeviceType::PrivateUse1)->name(), "module");
}

TEST_F(TelemetryRegistryTest, NullIsRefused) {
  EXPECT_THROW(TelemetryRegistry(nullptr), InvalidArgument);
  EXPECT_THROW(registry.register_backend(c10::DeviceType::CUDA, nullptr), InvalidArgument);
  EXPECT_THROW(registry.register_backend("lamp", nullptr), InvalidArgument);
  EXPECT_THROW(registry.register_module("lamp", nullptr), InvalidArgument);
}

TEST_F(TelemetryRegistryTest, ANameThatNoPlugInCanHaveIsRefused) {
  EXPECT_THROW(registry.register_backend("", other), InvalidArgument);
  try {
    registry.register_backend("CUDA", other);
    FAIL() << "'CUDA' was accepted as the name of a plug-in";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("'CUDA'; register by device type instead"));
  }
}

}  // namespace
}  // namespace offstage
