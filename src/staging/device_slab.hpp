// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The device memory of one load.

#include <offstage/base/config.hpp>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// Pieces of device memory that are allocated for one load and freed together.
///
/// Every group's storage holds a reference, so a view that user code keeps beyond an offload keeps
/// the memory. The memory belongs to the stream that was current when it was allocated.
class DeviceSlab final : public c10::intrusive_ptr_target {
 public:
  DeviceSlab(c10::Device device, std::string component);
  DeviceSlab(const DeviceSlab&) = delete;
  DeviceSlab& operator=(const DeviceSlab&) = delete;
  DeviceSlab(DeviceSlab&&) = delete;
  DeviceSlab& operator=(DeviceSlab&&) = delete;
  ~DeviceSlab() override;

  /// Adds one piece from the device's allocator, on the current stream.
  /// @throws c10::OutOfMemoryError and what else the allocator throws; the slab stays as it was.
  std::byte* allocate(std::int64_t bytes);

  /// A pointer to `data`, inside the slab; it holds a reference on the slab.
  [[nodiscard]] c10::DataPtr make_pointer(std::byte* data) noexcept;
  /// A storage over `bytes` bytes at `data`, inside the slab; it holds a reference on the slab.
  [[nodiscard]] c10::Storage make_storage(std::byte* data, std::int64_t bytes);

  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

  /// Tells the allocator that work on `stream` uses the memory: it will not be reused before that
  /// work is done, whoever frees it, and whenever.
  void record_stream(const c10::Stream& stream) const;

  /// The stager has bound its tensors elsewhere.
  void release_ownership() noexcept { staged_ = false; }

  /// The name of the component that stages the memory behind `pointer`; null if none does.
  [[nodiscard]] static const std::string* staged_owner(const c10::DataPtr& pointer) noexcept;

  /// Gives the memory back with the last reference, although weak references may stay.
  void release_resources() override { pieces_.clear(); }

 private:
  const c10::Device device_;
  const std::string component_;
  std::vector<c10::DataPtr> pieces_;
  std::int64_t bytes_ = 0;
  std::atomic<bool> staged_{true};
};

/// Drops one reference on a slab. Exported: its address tells memory of ours from any other.
OFFSTAGE_API void drop_slab_reference(void* slab);

}  // namespace detail
OFFSTAGE_NAMESPACE_END
