// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/telemetry_figures.hpp>

#include <string>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

[[noreturn]] void refuse(const TelemetryBackend& backend, c10::Device device,
                         const std::string& what) {
  throw TelemetryError("telemetry of " + device.str() + " (" + std::string(backend.name()) +
                       "): impossible figure: " + what);
}

void require_not_negative(const TelemetryBackend& backend, c10::Device device, const char* figure,
                          std::int64_t value) {
  if (value < 0) refuse(backend, device, std::string(figure) + " is " + std::to_string(value));
}

}  // namespace

AllocatorStats read_allocator_stats(TelemetryBackend& backend, c10::Device device) {
  const AllocatorStats stats = backend.allocator_stats(device);
  require_not_negative(backend, device, "reserved", stats.reserved);
  require_not_negative(backend, device, "allocated", stats.allocated);
  require_not_negative(backend, device, "inactive_split", stats.inactive_split);
  if (stats.reserved == 0 && stats.allocated > 0) {
    refuse(backend, device, "reserved is 0 while allocated is " + std::to_string(stats.allocated));
  }
  return stats;
}

DeviceMemory read_device_memory(TelemetryBackend& backend, c10::Device device) {
  const DeviceMemory memory = backend.device_memory(device);
  if (memory.total <= 0 || memory.total > kMaxTotalBytes) {
    refuse(backend, device,
           "total is " + std::to_string(memory.total) + ", not in 1 .. " +
               std::to_string(kMaxTotalBytes));
  }
  require_not_negative(backend, device, "free", memory.free);
  if (memory.free > memory.total) {
    refuse(backend, device,
           "free is " + std::to_string(memory.free) + " of a total of " +
               std::to_string(memory.total));
  }
  return memory;
}

OFFSTAGE_NAMESPACE_END
