// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Where the memory of host masters comes from, and how it is pinned: the seam, and its plain form.

#include <offstage/base/bytes.hpp>
#include <offstage/base/config.hpp>

#include <cstdint>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// Bytes of a page of host memory.
[[nodiscard]] std::int64_t host_page_bytes() noexcept;

/// Supplies host memory and pins it, so that copies from it to one kind of device are asynchronous.
///
/// The default `allocate` and `free` are anonymous mappings of exactly the size asked for (rounded
/// to pages by the system); a provider whose device can pin existing memory only adds `pin` and
/// `unpin`, and says with `slice_bytes_max` that parts of an allocation can be pinned: most can use
/// `RegisteredHostMemory`. A provider that can only hand out memory that is pinned from the start
/// overrides all four and leaves `pin` and `unpin` empty.
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

  /// The host memory in bytes that `allocate(bytes)` really takes: whole pages, or what else the
  /// provider rounds to.
  [[nodiscard]] virtual std::int64_t taken_bytes(std::int64_t bytes) const noexcept;

  /// 0: `pin` gets what one `allocate` returned, as a whole, so masters make one allocation for
  /// each chunk. More: masters make one allocation in all, and `pin` gets slices of it of at most
  /// this many bytes: whole chunks, so a chunk that is larger is a slice of its own. A slice starts
  /// on a page, and no two share one.
  [[nodiscard]] virtual std::int64_t slice_bytes_max() const noexcept { return 0; }

  /// True if what is pinned counts towards RLIMIT_MEMLOCK (`mlock`). Drivers of devices pin without
  /// asking that limit.
  [[nodiscard]] virtual bool bound_by_memlock() const noexcept { return false; }

  /// Memory of at least `bytes` bytes, aligned to a page. Its contents are unspecified.
  /// @param bytes  More than 0.
  /// @throws HostMemoryError if there is none.
  [[nodiscard]] virtual void* allocate(std::int64_t bytes);

  /// Gives back what `allocate(bytes)` returned. The memory is not pinned any more.
  virtual void free(void* data, std::int64_t bytes) noexcept;

  /// Pins what one `allocate(bytes)` returned, or a slice of it (see `slice_bytes_max`). On failure
  /// the memory stays usable, pageable.
  /// @throws HostMemoryError if the device or the system refuses.
  virtual void pin(void* data, std::int64_t bytes) = 0;

  /// Undoes `pin` of the same range. May block the host until the device is idle.
  /// @throws HostMemoryError or what the device's runtime reports; the memory must then be kept.
  virtual void unpin(void* data, std::int64_t bytes) = 0;
};

/// Host memory that is not pinned: for devices that cannot pin, and for `pin_memory = false`.
class PageableHostMemory final : public HostMemory {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "pageable"; }
  [[nodiscard]] bool pins() const noexcept override { return false; }
  [[nodiscard]] std::int64_t slice_bytes_max() const noexcept override { return kGiB; }
  void pin(void* /*data*/, std::int64_t /*bytes*/) override {}
  void unpin(void* /*data*/, std::int64_t /*bytes*/) override {}
};

OFFSTAGE_NAMESPACE_END
