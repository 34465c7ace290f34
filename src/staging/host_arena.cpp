// SPDX-License-Identifier: Apache-2.0
#include "host_arena.hpp"

#include <offstage/base/bytes.hpp>
#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <mutex>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

/// Memory of others that arenas of this process have adopted: two components over the same bytes
/// would move them apart.
class AdoptedMemory {
 public:
  static AdoptedMemory& get() {
    static auto* const memory = new AdoptedMemory;  // Arenas die after statics, too.
    return *memory;
  }
  void add(const std::byte* data, std::int64_t bytes, const HostArena& arena) {
    const std::lock_guard lock(mutex_);
    ranges_.push_back({data, data + bytes, &arena});
  }
  void remove(const HostArena& arena) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase_if(ranges_, [&](const Range& range) { return range.arena == &arena; });
  }
  std::optional<std::string> owner(const std::byte* data, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    for (const Range& range : ranges_) {
      if (data < range.end && range.begin < data + bytes) return range.arena->component();
    }
    return std::nullopt;
  }

 private:
  struct Range {
    const std::byte* begin;
    const std::byte* end;
    const HostArena* arena;
  };
  std::mutex mutex_;
  std::vector<Range> ranges_;
};

}  // namespace

void drop_arena_reference(void* arena) {
  // Takes over the reference that make_storage() gave away.
  c10::intrusive_ptr<HostArena>::reclaim(static_cast<HostArena*>(arena));
}

ChunkPlacement place_chunks(std::span<const NewChunk> chunks, std::int64_t slice_bytes_max) {
  ChunkPlacement placement;
  std::vector<ChunkPlacement::Slice>& slices = placement.slices;
  for (std::size_t index = 0; index < chunks.size(); ++index) {
    const NewChunk& chunk = chunks[index];
    const bool kind_changes = index == 0 || chunks[index - 1].pin != chunk.pin;
    const bool is_full =
        chunk.pin && !kind_changes && slices.back().bytes + chunk.bytes > slice_bytes_max;
    if (kind_changes || is_full) {
      placement.bytes = align_up(placement.bytes, host_page_bytes());
      if (chunk.pin) slices.push_back({index, index, 0});
    }
    if (chunk.pin) {
      slices.back().end = index + 1;
      slices.back().bytes += chunk.bytes;
    }
    placement.offsets.push_back(placement.bytes);
    placement.bytes += chunk.bytes;
  }
  return placement;
}

HostArena::HostArena(std::shared_ptr<DeviceContext> context, std::string component)
    : context_(std::move(context)), component_(std::move(component)) {}

void HostArena::add_chunks(const std::shared_ptr<HostMemory>& memory,
                           std::span<const NewChunk> chunks, std::int64_t alignment) {
  const std::size_t first = chunks_.size();
  const std::size_t reservations = reservations_.size();
  const std::size_t slices = slices_.size();
  try {
    chunks_.resize(first + chunks.size());
    if (memory->slice_bytes_max() > 0) {
      reserve(memory, chunks, first, alignment);
      return;
    }
    const std::shared_ptr<HostMemory> pageable =
        memory->pins() ? std::make_shared<PageableHostMemory>() : memory;
    for (std::size_t index = 0; index < chunks.size();) {
      std::size_t end = index + 1;
      // Chunks that are not pinned share a reservation with their neighbours.
      while (!chunks[index].pin && end < chunks.size() && !chunks[end].pin) ++end;
      reserve(chunks[index].pin ? memory : pageable, chunks.subspan(index, end - index),
              first + index, alignment);
      index = end;
    }
  } catch (...) {
    shrink_to(reservations, slices, first);
    throw;
  }
}

void HostArena::reserve(const std::shared_ptr<HostMemory>& memory, std::span<const NewChunk> chunks,
                        std::size_t first_chunk, std::int64_t alignment) {
  if (chunks.empty()) return;
  const ChunkPlacement placement = place_chunks(chunks, memory->slice_bytes_max());
  // First, so that nothing fails once there is memory.
  reservations_.push_back({memory, nullptr, placement.bytes, 0});
  slices_.reserve(slices_.size() + placement.slices.size());
  Reservation& reservation = reservations_.back();
  {
    const c10::DeviceGuard on_device(context_->device());
    reservation.data = memory->allocate(placement.bytes);
  }
  auto* const data = static_cast<std::byte*>(reservation.data);
  if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(alignment) != 0) {
    throw HostMemoryError("component '" + component_ + "': host memory provider '" +
                          std::string(memory->name()) + "' returned memory that is not aligned" +
                          " to " + std::to_string(alignment) + " bytes");
  }
  for (std::size_t index = 0; index < chunks.size(); ++index) {
    chunks_[first_chunk + index] = {data + placement.offsets[index], chunks[index].bytes};
    reservation.chunk_bytes += chunks[index].bytes;
  }
  for (const ChunkPlacement::Slice& slice : placement.slices) {
    slices_.push_back({.end_chunk = first_chunk + slice.end,
                       .data = data + placement.offsets[slice.begin],
                       .bytes = slice.bytes,
                       .taken_bytes = memory->taken_bytes(slice.bytes),
                       .reservation = reservations_.size() - 1});
  }
}

void HostArena::add_adopted_chunk(std::byte* data, std::int64_t bytes,
                                  std::vector<c10::Storage> sources) {
  AdoptedMemory::get().add(data, bytes, *this);
  chunks_.push_back({data, bytes});
  adopted_.insert(adopted_.end(), std::make_move_iterator(sources.begin()),
                  std::make_move_iterator(sources.end()));
  adopted_bytes_ += bytes;
}

void HostArena::release_ownership() noexcept {
  staged_ = false;
  if (adopted_bytes_ != 0) AdoptedMemory::get().remove(*this);
}

std::optional<std::string> HostArena::adopted_owner(const std::byte* data, std::int64_t bytes) {
  return AdoptedMemory::get().owner(data, bytes);
}

HostArena::~HostArena() {
  release_ownership();
  const CancellationDeferral deferral;
  bool is_idle = false;
  if (context_->is_creating_process()) {
    try {
      wait_copies();
      is_idle = true;
    } catch (...) {
      // A dead device can neither be waited for nor asked to let go.
    }
  }
  release_adopted(is_idle);
  bool answers = is_idle;
  for (std::size_t index = 0; index < reservations_.size(); ++index) {
    const Reservation& reservation = reservations_[index];
    const bool is_pinned = std::ranges::any_of(slices_, [index](const Slice& slice) {
      return slice.reservation == index && slice.pinned;
    });
    if (is_pinned && answers) answers = unpin(index);
    if (is_idle && (answers || !is_pinned)) {
      reservation.memory->free(reservation.data, reservation.bytes);
    } else {
      // The device may still read the memory. What is not proven idle and unpinned is kept.
      context_->add_abandoned_host(reservation.chunk_bytes);
    }
  }
}

/// False if the device does not let go of it; it is not asked twice.
bool HostArena::unpin(std::size_t reservation) noexcept {
  HostMemory& memory = *reservations_[reservation].memory;
  try {
    const c10::DeviceGuard on_device(context_->device());
    for (Slice& slice : slices_) {
      if (slice.reservation != reservation || !slice.pinned) continue;
      memory.unpin(slice.data, slice.bytes);
      slice.pinned = false;
      context_->pinned_ledger().unpinned(slice.taken_bytes);
    }
    return true;
  } catch (...) {
    return false;
  }
}

void HostArena::release_adopted(bool is_idle) noexcept {
  if (is_idle) {
    adopted_.clear();
    return;
  }
  // Their allocators do not know of our copies: they must not get the memory back.
  for (c10::Storage& storage : adopted_) {
    static_cast<void>(storage.unsafeReleaseStorageImpl());
  }
  if (adopted_bytes_ != 0) context_->add_abandoned_host(adopted_bytes_);
}

void HostArena::shrink_to(std::size_t reservations, std::size_t slices,
                          std::size_t chunks) noexcept {
  for (std::size_t index = reservations; index < reservations_.size(); ++index) {
    const Reservation& reservation = reservations_[index];
    if (reservation.data != nullptr) {
      reservation.memory->free(reservation.data, reservation.bytes);
    }
  }
  reservations_.resize(reservations);
  slices_.resize(slices);
  chunks_.resize(chunks);
}

std::int64_t HostArena::bytes() const noexcept {
  std::int64_t sum = 0;
  for (const Chunk& chunk : chunks_) sum += chunk.bytes;
  return sum;
}

std::int64_t HostArena::pinned_bytes() const noexcept {
  std::int64_t sum = adopted_bytes_;
  for (const Slice& slice : slices_) sum += slice.pinned ? slice.bytes : 0;
  return sum;
}

std::int64_t HostArena::taken_bytes() const noexcept {
  std::int64_t sum = 0;
  for (const Reservation& reservation : reservations_) {
    sum += reservation.memory->taken_bytes(reservation.bytes);
  }
  return sum;
}

void HostArena::pin(std::size_t slice, PinnedLedger::Promise& promise) {
  Slice& pinned = slices_[slice];
  {
    const c10::DeviceGuard on_device(context_->device());
    reservations_[pinned.reservation].memory->pin(pinned.data, pinned.bytes);
  }
  pinned.pinned = true;
  promise.settle(pinned.taken_bytes);
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
