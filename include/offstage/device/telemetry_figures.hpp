// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The one place where figures of a backend are read and checked.

#include <offstage/base/config.hpp>
#include <offstage/device/telemetry_backend.hpp>

#include <c10/core/Device.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// The largest total that a bound can be computed from: up to 2^53 every byte count is exact as a
/// double. A device that claims more is not believed.
inline constexpr std::int64_t kMaxTotalBytes = std::int64_t{1} << 53;

/// The two questions that a backend answers; a failure to read is counted for each.
enum class TelemetryKind : std::uint8_t {
  kAllocatorStats,
  kDeviceMemory,
};
inline constexpr int kTelemetryKinds = 2;

/// The stable spelling of a kind: "allocator_stats", "device_memory".
[[nodiscard]] constexpr std::string_view to_string(TelemetryKind kind) noexcept {
  return kind == TelemetryKind::kAllocatorStats ? "allocator_stats" : "device_memory";
}

/// What a retention policy decides from: one device's figures at one moment, in bytes.
struct MemoryFigures {
  AllocatorStats allocator = {};
  DeviceMemory device = {};

  /// Held by the allocator and not handed to tensors; 0 if the allocator says it handed out more
  /// than it holds. Free parts of segments that are partly in use count, as if they were reusable.
  [[nodiscard]] constexpr std::int64_t cached() const noexcept {
    return std::max<std::int64_t>(0, allocator.reserved - allocator.allocated);
  }

  /// The part of `cached()` that a release can give back to the device: all but the free parts of
  /// segments that are partly in use. What an allocator does not say cannot be left out.
  [[nodiscard]] constexpr std::int64_t releasable() const noexcept {
    return std::max<std::int64_t>(0, cached() - allocator.inactive_split);
  }
};

/// Asks `backend` for the allocator's figures and refuses impossible ones. Every reader of figures
/// in the library comes through here, so that no backend has to check its own.
/// @throws TelemetryError naming the figure and its value if one is negative, or if nothing is
///         reserved while something is allocated; whatever the backend throws.
[[nodiscard]] AllocatorStats read_allocator_stats(TelemetryBackend& backend, c10::Device device);

/// Asks `backend` for the device's free and total bytes and refuses impossible ones.
/// @throws TelemetryError naming the figure and its value if `total` is not in 1 .. 2^53 or `free`
///         not in 0 .. total; whatever the backend throws.
[[nodiscard]] DeviceMemory read_device_memory(TelemetryBackend& backend, c10::Device device);

OFFSTAGE_NAMESPACE_END
