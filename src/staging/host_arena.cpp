// SPDX-License-Identifier: Apache-2.0
#include "host_arena.hpp"

#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>

#include <c10/core/StorageImpl.h>

#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

void drop_arena_reference(void* arena) {
  // Takes over the reference that make_storage() gave away.
  c10::intrusive_ptr<HostArena>::reclaim(static_cast<HostArena*>(arena));
}

HostArena::HostArena(std::shared_ptr<DeviceContext> context, std::shared_ptr<HostMemory> memory,
                     std::string component, std::span<const std::int64_t> chunk_bytes,
                     std::int64_t alignment)
    : context_(std::move(context)), memory_(std::move(memory)), component_(std::move(component)) {
  chunks_.reserve(chunk_bytes.size());
  try {
    for (const std::int64_t bytes : chunk_bytes) {
      void* data = memory_->allocate(bytes);
      chunks_.push_back({static_cast<std::byte*>(data), bytes, false});
      if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(alignment) != 0) {
        throw HostMemoryError("component '" + component_ + "': host memory provider '" +
                              std::string(memory_->name()) +
                              "' returned memory that is not aligned" + " to " +
                              std::to_string(alignment) + " bytes");
      }
    }
  } catch (...) {
    free_chunks();
    throw;
  }
}

HostArena::~HostArena() {
  const CancellationDeferral deferral;
  bool idle = false;
  if (context_->is_creating_process()) {
    try {
      wait_copies();
      for (Chunk& chunk : chunks_) {
        if (chunk.pinned) memory_->unpin(chunk.data, chunk.bytes);
        chunk.pinned = false;
      }
      idle = true;
    } catch (...) {
      // A dead device can neither be waited for nor asked to let go.
    }
  }
  if (idle) {
    free_chunks();
  } else {
    // The device may still read the memory. What is not proven idle is kept.
    context_->add_abandoned_host(bytes());
  }
}

void HostArena::free_chunks() noexcept {
  for (const Chunk& chunk : chunks_) memory_->free(chunk.data, chunk.bytes);
  chunks_.clear();
}

std::int64_t HostArena::bytes() const noexcept {
  std::int64_t sum = 0;
  for (const Chunk& chunk : chunks_) sum += chunk.bytes;
  return sum;
}

std::int64_t HostArena::pinned_bytes() const noexcept {
  std::int64_t sum = 0;
  for (const Chunk& chunk : chunks_) sum += chunk.pinned ? chunk.bytes : 0;
  return sum;
}

void HostArena::pin(std::size_t index) {
  Chunk& chunk = chunks_[index];
  memory_->pin(chunk.data, chunk.bytes);
  chunk.pinned = memory_->pins();
}

c10::Storage HostArena::make_storage(std::byte* data, std::int64_t bytes) {
  c10::intrusive_ptr<HostArena> self = c10::intrusive_ptr<HostArena>::reclaim_copy(this);
  c10::DataPtr pointer(data, self.release(), &drop_arena_reference, c10::Device(c10::kCPU));
  return c10::make_storage_impl(c10::StorageImpl::use_byte_size_t(), c10::SymInt(bytes),
                                std::move(pointer), /*allocator=*/nullptr, /*resizable=*/false,
                                c10::Device(c10::kCPU));
}

void HostArena::wait_copies() {
  if (!copies_outstanding_.exchange(false)) return;
  try {
    context_->synchronize(context_->copy_stream());
  } catch (...) {
    copies_outstanding_ = true;
    throw;
  }
}

const std::string* HostArena::staged_owner(const c10::DataPtr& pointer) noexcept {
  const auto* arena = pointer.cast_context<HostArena>(&drop_arena_reference);
  return arena != nullptr && arena->staged_ ? &arena->component_ : nullptr;
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
