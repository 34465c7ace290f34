// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The seam through which the library reads a device's memory figures and frees its cache.

#include <offstage/base/config.hpp>

#include <c10/core/Device.h>

#include <cstdint>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// Figures of one device's caching allocator, in bytes.
struct AllocatorStats {
  std::int64_t reserved = 0;        ///< Taken from the device, whether handed to a tensor or not.
  std::int64_t allocated = 0;       ///< Handed to tensors.
  std::int64_t inactive_split = 0;  ///< Free parts of segments partly in use; a release cannot
                                    ///< return them. 0 where the allocator does not say.
};

/// Figures of the whole device, in bytes; other processes count.
struct DeviceMemory {
  std::int64_t free = 0;
  std::int64_t total = 0;
};

/// Reads the figures of the devices of one kind, and frees what their allocator holds idle.
///
/// @par Errors
/// A figure that cannot be read is an exception, of any type; it is never a made-up number.
/// @par Threads
/// All members may be called concurrently.
/// @par Streams
/// The two queries touch no stream and do not wait for the device.
class TelemetryBackend {
 public:
  TelemetryBackend() = default;
  TelemetryBackend(const TelemetryBackend&) = delete;
  TelemetryBackend& operator=(const TelemetryBackend&) = delete;
  TelemetryBackend(TelemetryBackend&&) = delete;
  TelemetryBackend& operator=(TelemetryBackend&&) = delete;
  virtual ~TelemetryBackend() = default;

  /// Short name for reports: "generic", "module", "fake", ...
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// @throws TelemetryError or whatever the allocator throws.
  [[nodiscard]] virtual AllocatorStats allocator_stats(c10::Device device) = 0;

  /// @throws TelemetryError or whatever the device's runtime throws.
  [[nodiscard]] virtual DeviceMemory device_memory(c10::Device device) = 0;

  /// Gives the idle memory of the allocator back to the device. Blocks the host until the work
  /// already queued is done. LibTorch's own call has no device argument: it flushes every device
  /// of the type.
  virtual void release_cached(c10::Device device) = 0;
};

OFFSTAGE_NAMESPACE_END
