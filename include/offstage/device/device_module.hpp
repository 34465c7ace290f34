// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What a plug-in supplies for a device whose allocator LibTorch's generic interface cannot ask.

#include <offstage/base/config.hpp>
#include <offstage/device/telemetry_backend.hpp>

#include <c10/core/Device.h>

OFFSTAGE_NAMESPACE_BEGIN

/// The memory functions of one device's own runtime module, as torch_npu has them beside
/// LibTorch's generic ones. A plug-in that is compiled against that runtime implements this and
/// registers it with `TelemetryRegistry::register_module` under the name of the device.
///
/// @par Threads
/// All members may be called concurrently.
/// @par Errors
/// What cannot be read is an exception of any type, never a zero.
class DeviceModule {
 public:
  DeviceModule() = default;
  DeviceModule(const DeviceModule&) = delete;
  DeviceModule& operator=(const DeviceModule&) = delete;
  DeviceModule(DeviceModule&&) = delete;
  DeviceModule& operator=(DeviceModule&&) = delete;
  virtual ~DeviceModule() = default;

  /// Bytes reserved by and allocated from the caching allocator of device `index`.
  [[nodiscard]] virtual AllocatorStats memory_stats(c10::DeviceIndex index) = 0;

  /// Free and total bytes of device `index`, other processes included.
  [[nodiscard]] virtual DeviceMemory memory_info(c10::DeviceIndex index) = 0;

  /// Gives idle memory back to device `index`. If the runtime works on the current device only,
  /// this makes `index` current and restores the caller's before it returns.
  virtual void empty_cache(c10::DeviceIndex index) = 0;
};

OFFSTAGE_NAMESPACE_END
