// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>
#include <offstage/device/generic_telemetry.hpp>

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

constexpr auto kAggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

c10::Allocator* registered_allocator(c10::DeviceType type) {
  try {
    return c10::GetAllocator(type);  // Null in a release build of LibTorch; an assert in others.
  } catch (const c10::Error&) {
    return nullptr;
  }
}

void initialize(c10::DeviceType type) {
  try {
    at::globalContext().lazyInitDevice(type);
  } catch (const c10::Error&) {
    throw TelemetryError("generic telemetry: device type " + c10::DeviceTypeName(type, true) +
                         " cannot be initialised: " + current_exception_text());
  }
}

// The allocator of an initialised device. c10::getDeviceAllocator would assert for an allocator
// without statistics; here that is an ordinary answer.
c10::DeviceAllocator& statistics_of(c10::Device device) {
  // A name is made for an error alone: a decision must not allocate.
  const auto type = [device] { return c10::DeviceTypeName(device.type(), /*lower_case=*/true); };
  if (!device.has_index()) {
    throw InvalidArgument("generic telemetry: device must have an explicit index, got " + type());
  }
  c10::Allocator* allocator = registered_allocator(device.type());
  if (allocator == nullptr) {
    throw TelemetryError("generic telemetry: device type " + type() +
                         " has no allocator registered with LibTorch");
  }
  auto* device_allocator = dynamic_cast<c10::DeviceAllocator*>(allocator);
  if (device_allocator == nullptr) {
    throw TelemetryError("generic telemetry: the allocator of device type " + type() +
                         " has no generic statistics (it is not a c10::DeviceAllocator); register "
                         "a backend for it with TelemetryRegistry");
  }
  initialize(device.type());
  return *device_allocator;
}

// Counts that no int64 holds stay impossible instead of turning negative.
std::int64_t to_bytes(std::size_t bytes) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  return bytes > static_cast<std::size_t>(kMax) ? kMax : static_cast<std::int64_t>(bytes);
}

}  // namespace

AllocatorStats GenericTelemetry::allocator_stats(c10::Device device) {
  const auto stats = statistics_of(device).getDeviceStats(device.index());
  return {.reserved = stats.reserved_bytes[kAggregate].current,
          .allocated = stats.allocated_bytes[kAggregate].current,
          .inactive_split = stats.inactive_split_bytes[kAggregate].current};
}

DeviceMemory GenericTelemetry::device_memory(c10::Device device) {
  const auto [free, total] = statistics_of(device).getMemoryInfo(device.index());
  return {.free = to_bytes(free), .total = to_bytes(total)};
}

void GenericTelemetry::release_cached(c10::Device device) {
  c10::DeviceAllocator& allocator = statistics_of(device);
  const c10::DeviceGuard guard(device);
  allocator.emptyCache();
}

OFFSTAGE_NAMESPACE_END
