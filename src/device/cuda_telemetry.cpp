// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/base/number_text.hpp>
#include <offstage/device/cuda_telemetry.hpp>

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <cmath>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

// What the allocator may still take of a device of which `share` belongs to the process. The limit
// is the product truncated, as the allocator computes it.
std::int64_t headroom(const DeviceMemory& memory, double share, std::int64_t counted) {
  const auto limit = static_cast<std::int64_t>(share * static_cast<double>(memory.total));
  return std::min(memory.free, std::max<std::int64_t>(0, limit - counted));
}

}  // namespace

std::string_view CudaTelemetry::name() const noexcept {
  return uses_cuda_malloc_async() ? "cuda_malloc_async" : "cuda";
}

AllocatorStats CudaTelemetry::allocator_stats(c10::Device device) {
  return generic_.allocator_stats(device);
}

DeviceMemory CudaTelemetry::device_memory(c10::Device device) {
  DeviceMemory memory = generic_.device_memory(device);
  const double share = c10::cuda::CUDACachingAllocator::getMemoryFraction(device.index());
  if (std::isnan(share) || share < 0) {
    throw TelemetryError("cuda telemetry: impossible figure: memory fraction of " + device.str() +
                         " is " + number_text(share));
  }
  if (share >= 1) return memory;  // Not set; cudaMallocAsync then says more than 1.
  const AllocatorStats stats = generic_.allocator_stats(device);
  memory.free =
      headroom(memory, share, uses_cuda_malloc_async() ? stats.allocated : stats.reserved);
  return memory;
}

void CudaTelemetry::release_cached(c10::Device device) {
  generic_.release_cached(device);
}

bool CudaTelemetry::uses_cuda_malloc_async() noexcept {
  // What LibTorch itself compares with; see CUDAAllocatorConfig.
  const auto* const allocator = c10::cuda::CUDACachingAllocator::allocator.load();
  return allocator != nullptr &&
         const_cast<c10::cuda::CUDACachingAllocator::CUDAAllocator*>(allocator)->name() ==
             "cudaMallocAsync";
}

OFFSTAGE_NAMESPACE_END
