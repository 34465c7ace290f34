// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Figures through LibTorch's own device-independent allocator interface.

#include <offstage/base/config.hpp>
#include <offstage/device/telemetry_backend.hpp>

#include <c10/core/Device.h>

#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// Asks the allocator that LibTorch has registered for the device's type, if it is a
/// `c10::DeviceAllocator`. This serves CUDA, XPU and every plug-in device whose allocator derives
/// from it.
///
/// The device's runtime is initialised before the first figure is read, as LibTorch itself would
/// do on first use. An index beyond the devices there are is the allocator's error.
///
/// @par Errors
/// A device type that has no allocator, or one without statistics, is a TelemetryError that says
/// so: nothing is guessed. A device without an index is an InvalidArgument. Errors of the allocator
/// pass through.
class GenericTelemetry final : public TelemetryBackend {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "generic"; }
  [[nodiscard]] AllocatorStats allocator_stats(c10::Device device) override;
  [[nodiscard]] DeviceMemory device_memory(c10::Device device) override;

  /// Runs under a device guard, so that no context appears on another device; still, LibTorch's
  /// call flushes every device of the type.
  void release_cached(c10::Device device) override;
};

OFFSTAGE_NAMESPACE_END
