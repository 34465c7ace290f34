// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>
#include <offstage/device/cuda_host_registration.hpp>
#include <offstage/device/host_allocator_memory.hpp>

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>

#include <bit>
#include <mutex>
#include <string>
#include <unordered_map>

OFFSTAGE_NAMESPACE_BEGIN

struct HostAllocatorMemory::Blocks {
  std::mutex mutex;
  std::unordered_map<void*, c10::DataPtr> by_address;  // Guarded by mutex.
};

namespace {

c10::DeviceType checked_type(c10::DeviceType device_type) {
  if (HostAllocatorMemory::is_available(device_type)) return device_type;
  throw InvalidArgument("host memory: no pinned host allocator is registered for device type " +
                        c10::DeviceTypeName(device_type, /*lower_case=*/true));
}

/// Asks the allocator's statistics what a request costs that is no power of two.
bool rounds_to_powers_of_two(c10::DeviceType device_type) {
  try {
    at::HostAllocator* const allocator = at::getHostAllocator(device_type);
    const std::int64_t bytes = 5 * host_page_bytes();
    const std::int64_t before = allocator->get_stats().active_bytes.current;
    const c10::DataPtr block = allocator->allocate(static_cast<std::size_t>(bytes));
    const std::int64_t taken = allocator->get_stats().active_bytes.current - before;
    return taken != bytes;
  } catch (...) {
    if (is_forced_unwinding()) throw;
    return true;  // Not known: what LibTorch's own allocators do.
  }
}

}  // namespace

HostAllocatorMemory::HostAllocatorMemory(c10::DeviceType device_type)
    : device_type_(checked_type(device_type)),
      rounds_to_powers_of_two_(rounds_to_powers_of_two(device_type)),
      blocks_(std::make_unique<Blocks>()) {}

HostAllocatorMemory::~HostAllocatorMemory() = default;

bool HostAllocatorMemory::is_available(c10::DeviceType device_type) noexcept {
  try {
    return device_type != c10::DeviceType::CPU && at::getHostAllocator(device_type) != nullptr;
  } catch (...) {
    return false;
  }
}

std::int64_t HostAllocatorMemory::taken_bytes(std::int64_t bytes) const noexcept {
  if (!rounds_to_powers_of_two_) return HostMemory::taken_bytes(bytes);
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

void* HostAllocatorMemory::allocate(std::int64_t bytes) {
  if (bytes <= 0) {
    throw InvalidArgument("host memory: bytes must be more than 0, got " + std::to_string(bytes));
  }
  c10::DataPtr block;
  try {
    block = at::getHostAllocator(device_type_)->allocate(static_cast<std::size_t>(bytes));
  } catch (...) {
    if (is_forced_unwinding()) throw;
    throw HostMemoryError("host memory: the pinned allocator of " +
                          c10::DeviceTypeName(device_type_, /*lower_case=*/true) + " refused " +
                          std::to_string(bytes) + " bytes: " + current_exception_text());
  }
  void* data = block.get();
  if (data == nullptr) {
    throw HostMemoryError("host memory: the pinned allocator returned null for " +
                          std::to_string(bytes) + " bytes");
  }
  const std::lock_guard lock(blocks_->mutex);
  blocks_->by_address.emplace(data, std::move(block));
  return data;
}

void HostAllocatorMemory::free(void* data, std::int64_t /*bytes*/) noexcept {
  c10::DataPtr block;  // Dies after the lock is given back: its deleter calls into the device.
  const std::lock_guard lock(blocks_->mutex);
  const auto found = blocks_->by_address.find(data);
  if (found == blocks_->by_address.end()) return;
  block = std::move(found->second);
  blocks_->by_address.erase(found);
}

std::shared_ptr<HostMemory> default_host_memory(c10::DeviceType device_type) {
  if (device_type == c10::DeviceType::CUDA) {
    if (const auto runtime = CudaHostRegistration::find()) return runtime->host_memory();
  }
  if (HostAllocatorMemory::is_available(device_type)) {
    return std::make_shared<HostAllocatorMemory>(device_type);
  }
  return std::make_shared<PageableHostMemory>();
}

OFFSTAGE_NAMESPACE_END
