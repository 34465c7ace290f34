// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The host memory that holds one stager's masters.

#include <offstage/base/config.hpp>
#include <offstage/device/device_context.hpp>

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// Chunks of host memory, one for each chunk of the device slab.
///
/// Every master storage holds a reference, so the memory outlives the stager for as long as a
/// module is bound to it. The last owner waits on the host for copies still reading it, then unpins
/// and frees. On a dead device, or in a forked child, it does neither: the memory is abandoned,
/// counted.
class HostArena final : public c10::intrusive_ptr_target {
 public:
  /// Reserves all chunks; pins none.
  /// @throws HostMemoryError; what was reserved is given back.
  HostArena(std::shared_ptr<DeviceContext> context, std::shared_ptr<HostMemory> memory,
            std::string component, std::span<const std::int64_t> chunk_bytes,
            std::int64_t alignment);
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;
  HostArena(HostArena&&) = delete;
  HostArena& operator=(HostArena&&) = delete;
  ~HostArena() override;

  [[nodiscard]] std::byte* chunk(std::size_t index) const noexcept { return chunks_[index].data; }
  [[nodiscard]] std::int64_t chunk_bytes(std::size_t index) const noexcept {
    return chunks_[index].bytes;
  }
  [[nodiscard]] bool is_pinned(std::size_t index) const noexcept { return chunks_[index].pinned; }
  [[nodiscard]] std::int64_t bytes() const noexcept;
  [[nodiscard]] std::int64_t pinned_bytes() const noexcept;

  /// Pins one chunk. @throws what the provider throws; the chunk stays usable, pageable.
  void pin(std::size_t index);

  /// A storage over `bytes` bytes at `data`, inside the arena; it holds a reference on the arena.
  [[nodiscard]] c10::Storage make_storage(std::byte* data, std::int64_t bytes);

  /// From here on copies queued on the copy stream may be reading the arena.
  void note_copies_queued() noexcept { copies_outstanding_ = true; }
  /// Blocks the host until they are done.
  void wait_copies();

  /// The stager is gone: its tensors may be staged anew.
  void release_ownership() noexcept { staged_ = false; }

  /// The name of the component that stages the memory behind `pointer`; null if none does.
  [[nodiscard]] static const std::string* staged_owner(const c10::DataPtr& pointer) noexcept;

 private:
  struct Chunk {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
    bool pinned = false;
  };

  void free_chunks() noexcept;

  const std::shared_ptr<DeviceContext> context_;
  const std::shared_ptr<HostMemory> memory_;
  const std::string component_;
  std::vector<Chunk> chunks_;
  std::atomic<bool> copies_outstanding_{false};
  std::atomic<bool> staged_{true};
};

/// Drops one reference on an arena. Exported: its address tells memory of ours from any other.
OFFSTAGE_API void drop_arena_reference(void* arena);

}  // namespace detail
OFFSTAGE_NAMESPACE_END
