// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Where the memory of host masters comes from, and how it is pinned: the seam, and its plain form.

#include <offstage/base/config.hpp>

#include <cstdint>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// Supplies host memory and pins it, so that copies from it to one kind of device are asynchronous.
///
/// The default `allocate` and `free` are anonymous mappings of exactly the size asked for (rounded
/// to pages by the system); a provider whose device can pin existing memory only adds `pin` and
/// `unpin`. A provider that can only hand out memory that is pinned from the start overrides all
/// four and leaves `pin` and `unpin` empty.
///
/// @par Threads
/// All members may be called concurrently.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  HostMemory(HostMemory&&) = delete;
  HostMemory& operator=(HostMemory&&) = delete;
  virtual ~HostMemory() = default;

  /// Short name for reports: "pageable", "host_allocator", "simulated", ...
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// False if `pin` does nothing and copies from this memory block the host.
  [[nodiscard]] virtual bool pins() const noexcept = 0;

  /// Memory of at least `bytes` bytes, aligned to a page. Its contents are unspecified.
  /// @param bytes  More than 0.
  /// @throws HostMemoryError if there is none.
  [[nodiscard]] virtual void* allocate(std::int64_t bytes);

  /// Gives back what `allocate(bytes)` returned. The memory is not pinned any more.
  virtual void free(void* data, std::int64_t bytes) noexcept;

  /// Pins exactly what one `allocate(bytes)` returned. On failure the memory stays usable,
  /// pageable.
  /// @throws HostMemoryError if the device or the system refuses.
  virtual void pin(void* data, std::int64_t bytes) = 0;

  /// Undoes `pin`. May block the host until the device is idle.
  /// @throws HostMemoryError or what the device's runtime reports; the memory must then be kept.
  virtual void unpin(void* data, std::int64_t bytes) = 0;
};

/// Host memory that is not pinned: for devices that cannot pin, and for `pin_memory = false`.
class PageableHostMemory final : public HostMemory {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "pageable"; }
  [[nodiscard]] bool pins() const noexcept override { return false; }
  void pin(void* /*data*/, std::int64_t /*bytes*/) override {}
  void unpin(void* /*data*/, std::int64_t /*bytes*/) override {}
};

OFFSTAGE_NAMESPACE_END
