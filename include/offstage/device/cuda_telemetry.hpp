// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// CUDA's figures, with what only CUDA's own interface tells. Part of offstage::cuda.

#include <offstage/base/config.hpp>
#include <offstage/device/generic_telemetry.hpp>
#include <offstage/device/telemetry_backend.hpp>

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// Figures of CUDA devices. Differs from GenericTelemetry in one thing: where a share of the device
/// is set for the process (`per_process_memory_fraction`, `setMemoryFraction`), `free` is no more
/// than what the allocator may still take. LibTorch's own figure knows nothing of the share, and a
/// process that has used up its own looks as if it had the whole device before it.
///
/// With the allocator backend `cudaMallocAsync` the figures mean something else:
///  - `reserved` and `allocated` are those of the driver's default pool of the device, so that
///    other users of that pool in the process count;
///  - split blocks are not told (`inactive_split` is 0): a release may give back less than
///    `releasable`;
///  - the share counts what is handed out, not what is reserved.
///
/// @code
/// registry.register_backend(c10::DeviceType::CUDA, std::make_shared<offstage::CudaTelemetry>());
/// @endcode
///
/// @par Errors
/// Those of GenericTelemetry, and a TelemetryError for a share that is no number.
/// @par Threads
/// All members may be called concurrently.
class CudaTelemetry final : public TelemetryBackend {
 public:
  /// "cuda", or "cuda_malloc_async" with that allocator backend.
  [[nodiscard]] std::string_view name() const noexcept override;
  [[nodiscard]] AllocatorStats allocator_stats(c10::Device device) override;

  /// Asks the allocator's statistics too if a share is set.
  [[nodiscard]] DeviceMemory device_memory(c10::Device device) override;
  void release_cached(c10::Device device) override;

  /// True if LibTorch's CUDA allocator is `backend:cudaMallocAsync`.
  [[nodiscard]] static bool uses_cuda_malloc_async() noexcept;

 private:
  GenericTelemetry generic_;
};

OFFSTAGE_NAMESPACE_END
