// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Figures from a device's own module.

#include <offstage/base/config.hpp>
#include <offstage/base/error.hpp>
#include <offstage/device/device_module.hpp>
#include <offstage/device/telemetry_backend.hpp>

#include <c10/core/Device.h>

#include <memory>
#include <string_view>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

/// Asks a DeviceModule and nothing else.
class ModuleTelemetry final : public TelemetryBackend {
 public:
  /// @throws InvalidArgument if `module` is null.
  explicit ModuleTelemetry(std::shared_ptr<DeviceModule> module) : module_(std::move(module)) {
    if (module_ == nullptr) throw InvalidArgument("module telemetry: module must not be null");
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "module"; }
  [[nodiscard]] AllocatorStats allocator_stats(c10::Device device) override {
    return module_->memory_stats(device.index());
  }
  [[nodiscard]] DeviceMemory device_memory(c10::Device device) override {
    return module_->memory_info(device.index());
  }
  void release_cached(c10::Device device) override { module_->empty_cache(device.index()); }

 private:
  std::shared_ptr<DeviceModule> module_;
};

OFFSTAGE_NAMESPACE_END
