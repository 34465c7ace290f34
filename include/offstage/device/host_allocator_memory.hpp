// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Host memory from the pinned allocator that a device registered with LibTorch.

#include <offstage/base/config.hpp>
#include <offstage/device/host_memory.hpp>

#include <c10/core/Device.h>

#include <memory>

OFFSTAGE_NAMESPACE_BEGIN

/// Host memory from LibTorch's pinned host allocator of one device type (CUDA, NPU, ...).
///
/// The memory is pinned from the start, so `pin` and `unpin` do nothing. Beware of rounding:
/// LibTorch's allocators (of CUDA, NPU and others) round every request up to a power of two, which
/// `taken_bytes()` tells; `chunk_bytes_max` of the stager bounds what that can cost. Memory that is
/// freed stays with that allocator until its `empty_cache()`.
class HostAllocatorMemory final : public HostMemory {
 public:
  /// Takes a few pages once and gives them back, to see what the allocator rounds them to.
  /// @throws InvalidArgument if no pinned host allocator is registered for `device_type`.
  explicit HostAllocatorMemory(c10::DeviceType device_type);
  ~HostAllocatorMemory() override;

  /// True if a pinned host allocator is registered for `device_type`.
  [[nodiscard]] static bool is_available(c10::DeviceType device_type) noexcept;

  [[nodiscard]] std::string_view name() const noexcept override { return "host_allocator"; }
  [[nodiscard]] bool pins() const noexcept override { return true; }
  /// A power of two, if that is what the allocator rounds to, or if its statistics do not tell.
  [[nodiscard]] std::int64_t taken_bytes(std::int64_t bytes) const noexcept override;
  [[nodiscard]] void* allocate(std::int64_t bytes) override;
  void free(void* data, std::int64_t bytes) noexcept override;
  void pin(void* /*data*/, std::int64_t /*bytes*/) override {}
  void unpin(void* /*data*/, std::int64_t /*bytes*/) override {}

 private:
  struct Blocks;
  const c10::DeviceType device_type_;
  const bool rounds_to_powers_of_two_;
  const std::unique_ptr<Blocks> blocks_;
};

/// What a device uses unless told otherwise. CUDA: memory of exact size that is registered with the
/// runtime (`CudaHostRegistration`), if that is loaded. Else, and for other devices: the pinned
/// allocator that is registered with LibTorch. Else pageable memory.
[[nodiscard]] std::shared_ptr<HostMemory> default_host_memory(c10::DeviceType device_type);

OFFSTAGE_NAMESPACE_END
