// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Pinning with the CUDA runtime that is loaded in the process, without building against it.

#include <offstage/base/bytes.hpp>
#include <offstage/base/config.hpp>
#include <offstage/device/host_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

OFFSTAGE_NAMESPACE_BEGIN

/// `cudaHostRegister` and `cudaHostUnregister`, looked up at run time: LibTorch's CUDA builds have
/// them loaded, and neither headers nor a toolkit are needed to build.
///
/// @par Threads
/// All members may be called concurrently.
class CudaHostRegistration {
 public:
  /// Nothing if no CUDA runtime is loaded. Calls none of its functions.
  [[nodiscard]] static std::optional<CudaHostRegistration> find() noexcept;

  /// Pins a range for all CUDA devices. Makes a CUDA context on the current device if there is
  /// none.
  /// @throws HostMemoryError with the runtime's text. Its last error is cleared: LibTorch would
  ///         otherwise report it at the next kernel.
  void pin(void* data, std::int64_t bytes) const;

  /// Undoes `pin` of the same range. @throws as `pin` does; the memory must then be kept.
  void unpin(void* data, std::int64_t bytes) const;

  /// Host memory, named "cuda_registered", that is pinned this way.
  [[nodiscard]] std::shared_ptr<HostMemory> host_memory(std::int64_t slice_bytes_max = kGiB) const;

 private:
  CudaHostRegistration() = default;
  void require_success(int result, const char* call, std::int64_t bytes) const;

  int (*register_)(void*, std::size_t, unsigned) = nullptr;
  int (*unregister_)(void*) = nullptr;
  const char* (*error_string_)(int) = nullptr;
  int (*last_error_)() = nullptr;
};

OFFSTAGE_NAMESPACE_END
