// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <offstage/device/device_module.hpp>
#include <offstage/testing/fake_telemetry.hpp>

#include <c10/core/Device.h>

namespace offstage {

/// A device module with a FakeTelemetry inside; remembers the index it was last asked for.
class FakeDeviceModule final : public DeviceModule {
 public:
  FakeDeviceModule() = default;
  explicit FakeDeviceModule(MemoryFigures figures) : fake(figures) {}

  AllocatorStats memory_stats(c10::DeviceIndex index) override {
    last_index = index;
    return fake.allocator_stats(at(index));
  }
  DeviceMemory memory_info(c10::DeviceIndex index) override {
    last_index = index;
    return fake.device_memory(at(index));
  }
  void empty_cache(c10::DeviceIndex index) override {
    last_index = index;
    fake.release_cached(at(index));
  }

  testing::FakeTelemetry fake;
  c10::DeviceIndex last_index = -1;

 private:
  static c10::Device at(c10::DeviceIndex index) { return {c10::DeviceType::PrivateUse1, index}; }
};

}  // namespace offstage
