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
/// The memory is pinned from the start, so `pin` and `unpin` do nothing. Beware of rounding: the
/// allocator of CUDA rounds every request up to a power of two; `chunk_bytes_max` of the stager
/// bounds what that can cost.
class HostAllocatorMemory final : public HostMemory {
 public:
  /// @throws InvalidArgument if no pinned host allocator is registered for `device_type`.
  explicit HostAllocatorMemory(c10::DeviceType device_type);
  ~HostAllocatorMemory() override;

  /// True if a pinned host allocator is registered for `device_type`.
  [[nodiscard]] static bool is_available(c10::DeviceType device_type) noexcept;

  [[nodiscard]] std::string_view name() const noexcept override { return "host_allocator"; }
  [[nodiscard]] bool pins() const noexcept override { return true; }
  [[nodiscard]] void* allocate(std::int64_t bytes) override;
  void free(void* data, std::int64_t bytes) noexcept override;
  void pin(void* /*data*/, std::int64_t /*bytes*/) override {}
  void unpin(void* /*data*/, std::int64_t /*bytes*/) override {}

 private:
  struct Blocks;
  const c10::DeviceType device_type_;
  const std::unique_ptr<Blocks> blocks_;
};

/// What a device uses unless told otherwise: its registered pinned allocator, else pageable memory.
[[nodiscard]] std::shared_ptr<HostMemory> default_host_memory(c10::DeviceType device_type);

OFFSTAGE_NAMESPACE_END
