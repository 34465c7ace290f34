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
#include <optional>
#include <span>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// A chunk that is to be reserved.
struct NewChunk {
  std::int64_t bytes = 0;
  bool pin = false;  ///< Whether it will be pinned once it is full.
};

/// Where chunks go in one reservation, and what is pinned with one call: pure arithmetic.
struct ChunkPlacement {
  struct Slice {
    std::size_t begin = 0;  ///< The first chunk.
    std::size_t end = 0;    ///< Behind the last chunk.
    std::int64_t bytes = 0;
  };
  std::vector<std::int64_t> offsets;  ///< One for each chunk.
  std::vector<Slice> slices;          ///< Of chunks that will be pinned, in order.
  std::int64_t bytes = 0;             ///< Of the whole reservation.
};

/// Chunks lie side by side; a slice ends before the chunk that would make it larger than
/// `slice_bytes_max`, and where pinned and pageable chunks meet. There the next page begins.
[[nodiscard]] ChunkPlacement place_chunks(std::span<const NewChunk> chunks,
                                          std::int64_t slice_bytes_max);

/// Chunks of host memory, one for each chunk of the device slab.
///
/// Every master storage holds a reference, so the memory outlives the stager for as long as a
/// module is bound to it. The last owner waits on the host for copies still reading it, then unpins
/// and frees. On a dead device, or in a forked child, it does neither: the memory is abandoned,
/// counted.
class HostArena final : public c10::intrusive_ptr_target {
 public:
  /// Empty.
  HostArena(std::shared_ptr<DeviceContext> context, std::string component);
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;
  HostArena(HostArena&&) = delete;
  HostArena& operator=(HostArena&&) = delete;
  ~HostArena() override;

  /// Reserves chunks behind those there are; pins none. One reservation in all, if parts of an
  /// allocation of `memory` can be pinned (`slice_bytes_max()`). Otherwise one for each chunk that
  /// will be pinned; those that will not share one of pageable memory.
  /// @throws HostMemoryError; what this call reserved is given back.
  void add_chunks(const std::shared_ptr<HostMemory>& memory, std::span<const NewChunk> chunks,
                  std::int64_t alignment);

  /// Adds a chunk that is pinned memory of others, which `sources` keep alive.
  void add_adopted_chunk(std::byte* data, std::int64_t bytes, std::vector<c10::Storage> sources);

  [[nodiscard]] const std::string& component() const noexcept { return component_; }
  [[nodiscard]] std::byte* chunk(std::size_t index) const noexcept { return chunks_[index].data; }
  [[nodiscard]] std::size_t chunk_count() const noexcept { return chunks_.size(); }

  /// What is pinned with one call: whole chunks.
  struct Slice {
    std::size_t end_chunk = 0;  ///< Behind its last chunk.
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
    std::int64_t taken_bytes = 0;  ///< What the system pins for it.
    bool pinned = false;
    std::size_t reservation = 0;
  };
  /// In the order in which they were added.
  [[nodiscard]] std::span<const Slice> slices() const noexcept { return slices_; }
  /// Pins one slice, `promise.settle()`s what it takes, and counts it in the context's ledger.
  /// @throws what the provider throws; the slice stays usable, pageable.
  void pin(std::size_t slice, PinnedLedger::Promise& promise);

  /// Bytes of all chunks, of those that are pinned, and of those that are adopted (and pinned).
  [[nodiscard]] std::int64_t bytes() const noexcept;
  [[nodiscard]] std::int64_t pinned_bytes() const noexcept;
  [[nodiscard]] std::int64_t adopted_bytes() const noexcept { return adopted_bytes_; }
  /// The host memory that was taken for them, in bytes, as the provider rounds it.
  [[nodiscard]] std::int64_t taken_bytes() const noexcept;

  /// A storage over `bytes` bytes at `data`, inside the arena; it holds a reference on the arena.
  [[nodiscard]] c10::Storage make_storage(std::byte* data, std::int64_t bytes);

  /// From here on copies queued on the copy stream may be reading the arena.
  void note_copies_queued() noexcept { copies_outstanding_ = true; }
  /// Blocks the host until they are done.
  void wait_copies();

  /// The stager is gone: its tensors may be staged anew.
  void release_ownership() noexcept;

  /// The name of the component that stages the memory behind `pointer`; null if none does.
  [[nodiscard]] static const std::string* staged_owner(const c10::DataPtr& pointer) noexcept;
  /// The name of the component that has adopted a part of these bytes; nothing if none has.
  [[nodiscard]] static std::optional<std::string> adopted_owner(const std::byte* data,
                                                                std::int64_t bytes);

 private:
  struct Chunk {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };

  /// What one `allocate` returned.
  struct Reservation {
    std::shared_ptr<HostMemory> memory;
    void* data = nullptr;
    std::int64_t bytes = 0;
    std::int64_t chunk_bytes = 0;  // Without the rest of pages between slices.
  };

  void reserve(const std::shared_ptr<HostMemory>& memory, std::span<const NewChunk> chunks,
               std::size_t first_chunk, std::int64_t alignment);
  void shrink_to(std::size_t reservations, std::size_t slices, std::size_t chunks) noexcept;
  void release_adopted(bool is_idle) noexcept;
  [[nodiscard]] bool unpin(std::size_t reservation) noexcept;

  const std::shared_ptr<DeviceContext> context_;
  const std::string component_;
  std::vector<Reservation> reservations_;
  std::vector<Slice> slices_;
  std::vector<Chunk> chunks_;
  std::vector<c10::Storage> adopted_;
  std::int64_t adopted_bytes_ = 0;
  std::atomic<bool> copies_outstanding_{false};
  std::atomic<bool> staged_{true};
};

/// Drops one reference on an arena. Exported: its address tells memory of ours from any other.
OFFSTAGE_API void drop_arena_reference(void* arena);

}  // namespace detail
OFFSTAGE_NAMESPACE_END
