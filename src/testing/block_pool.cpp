// SPDX-License-Identifier: Apache-2.0
#include "block_pool.hpp"
#include "counter_board.hpp"

#include <offstage/base/bytes.hpp>
#include <offstage/base/error.hpp>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <sys/mman.h>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

constexpr std::int64_t kBlockAlignment = 512;
constexpr std::int64_t kSmallLimit = kMiB;  // Requests up to this are small.
constexpr std::int64_t kSmallSegment = 2 * kMiB;
constexpr std::int64_t kLargeLimit = 10 * kMiB;  // Requests from this on get their own size.
constexpr std::int64_t kLargeSegment = 20 * kMiB;
constexpr std::int64_t kSegmentAlignment = 2 * kMiB;

std::int64_t segment_size(std::int64_t size) {
  if (size <= kSmallLimit) return kSmallSegment;
  if (size < kLargeLimit) return kLargeSegment;
  return align_up(size, kSegmentAlignment);
}

std::size_t to_size(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

}  // namespace

BlockPool::BlockPool(std::string device_name, std::int64_t capacity, bool poison,
                     CounterBoard& counters, Monitor& monitor)
    : device_name_(std::move(device_name)),
      poison_(poison),
      counters_(counters),
      monitor_(monitor),
      capacity_(capacity) {}

void* BlockPool::allocate(std::int64_t bytes, StreamQueue& stream) {
  const std::lock_guard lock(mutex_);
  unpark_reached();
  const std::int64_t size = align_up(bytes, kBlockAlignment);
  const bool large = size > kSmallLimit;

  auto block = find_free(size, large, stream);
  const bool is_new = block == blocks_.end();
  if (block == blocks_.end()) block = new_segment(segment_size(size), large, stream);
  if (block == blocks_.end()) {
    ++stats_.num_alloc_retries;
    release_idle_segments();
    block = new_segment(segment_size(size), large, stream);
  }
  if (block == blocks_.end()) throw_out_of_memory(bytes, segment_size(size));

  auto& [data, found] = *block;
  const std::int64_t rest = found.size - size;
  if (large ? rest > kSmallLimit : rest >= kBlockAlignment) {
    Block remainder = found;
    remainder.size = rest;
    found.size = size;
    insert_free(blocks_.emplace(data + size, std::move(remainder)).first);
  }
  found.in_use = true;
  found.requested = bytes;
  grow(stats_.allocation, large, 1);
  grow(stats_.allocated_bytes, large, found.size);
  grow(stats_.active, large, 1);
  grow(stats_.active_bytes, large, found.size);
  grow(stats_.requested_bytes, large, bytes);
  counters_.add(&SimulatorCounters::allocations);
  monitor_.allocate(stream, data, found.size, is_new);
  return data;
}

void BlockPool::count_out_of_memory() {
  const std::lock_guard lock(mutex_);
  note_out_of_memory();
}

bool BlockPool::free(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<std::byte*>(data));
  if (block == blocks_.end()) return false;
  TORCH_INTERNAL_ASSERT(block->second.in_use);
  Block& freed = block->second;
  shrink(stats_.allocation, freed.large, 1);
  shrink(stats_.allocated_bytes, freed.large, freed.size);
  shrink(stats_.requested_bytes, freed.large, freed.requested);
  counters_.add(&SimulatorCounters::frees);
  Parked parked{block->first, {}};
  for (StreamQueue* user : std::exchange(freed.users, {})) {
    parked.users.push_back(monitor_.mark(*user));
  }
  monitor_.free(*freed.stream, data, freed.size, parked.users);
  if (parked.users.empty()) {
    make_free(block);
  } else {
    parked_.push_back(std::move(parked));
  }
  return true;
}

void BlockPool::record_stream(void* data, StreamQueue& stream) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<std::byte*>(data));
  if (block == blocks_.end() || !block->second.in_use) return;
  if (block->second.stream != &stream) block->second.users.insert(&stream);
}

void BlockPool::release_cached() {
  const std::lock_guard lock(mutex_);
  release_idle_segments();
}

bool BlockPool::contains(const void* data) const {
  const std::lock_guard lock(mutex_);
  const auto* address = static_cast<const std::byte*>(data);
  auto block = blocks_.upper_bound(const_cast<std::byte*>(address));
  if (block == blocks_.begin()) return false;
  --block;
  return block->second.in_use && address < block->first + block->second.size;
}

void BlockPool::set_capacity(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

BlockPool::Stats BlockPool::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::int64_t BlockPool::capacity() const {
  const std::lock_guard lock(mutex_);
  return capacity_;
}

std::int64_t BlockPool::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return std::max(std::int64_t{0}, capacity_ - used_by_others_ - reserved());
}

void BlockPool::set_used_by_others(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_by_others_ = bytes;
}

void BlockPool::set_fraction(double fraction) {
  const std::lock_guard lock(mutex_);
  fraction_ = fraction;
}

std::int64_t BlockPool::available() const {
  const auto limit = fraction_ < 1
                         ? static_cast<std::int64_t>(fraction_ * static_cast<double>(capacity_))
                         : capacity_;
  return std::min(capacity_ - used_by_others_, limit) - reserved();
}

void BlockPool::reset_peaks() {
  const std::lock_guard lock(mutex_);
  for (StatArray* array :
       {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split,
        &stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
        &stats_.inactive_split_bytes, &stats_.requested_bytes}) {
    for (auto& stat : *array) stat.reset_peak();
  }
}

void BlockPool::reset_accumulated() {
  const std::lock_guard lock(mutex_);
  for (StatArray* array :
       {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split,
        &stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
        &stats_.inactive_split_bytes, &stats_.requested_bytes}) {
    for (auto& stat : *array) stat.reset_accumulated();
  }
  stats_.num_alloc_retries = 0;
  stats_.num_ooms = 0;
  stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = 0;
  stats_.num_device_free = 0;
}

void BlockPool::grow(StatArray& stats, bool large, std::int64_t amount) {
  stats[0].increase(to_size(amount));
  stats[large ? 2 : 1].increase(to_size(amount));
}

void BlockPool::shrink(StatArray& stats, bool large, std::int64_t amount) {
  stats[0].decrease(to_size(amount));
  stats[large ? 2 : 1].decrease(to_size(amount));
}

BlockPool::Blocks::iterator BlockPool::find_free(std::int64_t size, bool large,
                                                 StreamQueue& stream) {
  const auto key = free_.lower_bound(FreeKey{large, &stream, size, nullptr});
  if (key == free_.end() || key->large != large || key->stream != &stream) return blocks_.end();
  const auto block = blocks_.find(key->data);
  erase_free(block);
  return block;
}

BlockPool::Blocks::iterator BlockPool::new_segment(std::int64_t size, bool large,
                                                   StreamQueue& stream) {
  if (size > available()) return blocks_.end();
  monitor_.sweep();
  void* memory =
      ::mmap(nullptr, to_size(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return blocks_.end();
  auto* data = static_cast<std::byte*>(memory);
  queue_poison(stream, data, size);
  grow(stats_.segment, large, 1);
  grow(stats_.reserved_bytes, large, size);
  ++stats_.num_device_alloc;
  counters_.add(&SimulatorCounters::segments_allocated);
  return blocks_
      .emplace(data, Block{.segment = data,
                           .segment_size = size,
                           .size = size,
                           .stream = &stream,
                           .large = large,
                           .users = {}})
      .first;
}

void BlockPool::insert_free(Blocks::iterator block) {
  const auto& [data, idle] = *block;
  free_.insert(FreeKey{idle.large, idle.stream, idle.size, data});
  if (idle.whole_segment()) return;
  grow(stats_.inactive_split, idle.large, 1);
  grow(stats_.inactive_split_bytes, idle.large, idle.size);
}

void BlockPool::erase_free(Blocks::iterator block) {
  const auto& [data, idle] = *block;
  free_.erase(FreeKey{idle.large, idle.stream, idle.size, data});
  if (idle.whole_segment()) return;
  shrink(stats_.inactive_split, idle.large, 1);
  shrink(stats_.inactive_split_bytes, idle.large, idle.size);
}

void BlockPool::make_free(Blocks::iterator block) {
  Block& idle = block->second;
  idle.in_use = false;
  shrink(stats_.active, idle.large, 1);
  shrink(stats_.active_bytes, idle.large, idle.size);
  queue_poison(*idle.stream, block->first, idle.size);

  const auto is_idle_part = [&](Blocks::iterator other) {
    return other->second.segment == idle.segment && !other->second.in_use;
  };
  if (const auto next = std::next(block); next != blocks_.end() && is_idle_part(next)) {
    erase_free(next);
    idle.size += next->second.size;
    blocks_.erase(next);
  }
  if (block != blocks_.begin() && is_idle_part(std::prev(block))) {
    const auto previous = std::prev(block);
    erase_free(previous);
    previous->second.size += idle.size;
    blocks_.erase(block);
    block = previous;
  }
  insert_free(block);
}

void BlockPool::unpark_reached() {
  std::erase_if(parked_, [this](const Parked& parked) {
    const bool reached = std::ranges::all_of(parked.users, [this](const Mark& user) {
      return monitor_.reached(user, /*program_asks=*/false);
    });
    if (reached) make_free(blocks_.find(parked.data));
    return reached;
  });
}

void BlockPool::release_idle_segments() {
  if (!parked_.empty()) ++stats_.num_sync_all_streams;
  for (const Parked& parked : std::exchange(parked_, {})) {
    for (const Mark& user : parked.users) monitor_.host_wait(user, /*orders=*/false);
    make_free(blocks_.find(parked.data));
  }
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    auto& [data, idle] = *block;
    if (idle.in_use || !idle.whole_segment()) {
      ++block;
      continue;
    }
    monitor_.host_wait(monitor_.mark(*idle.stream), /*orders=*/false);
    erase_free(block);
    monitor_.release(data, idle.size);
    monitor_.bury(data, idle.size);  // Who still reads it in a race is not to crash.
    shrink(stats_.segment, idle.large, 1);
    shrink(stats_.reserved_bytes, idle.large, idle.size);
    ++stats_.num_device_free;
    counters_.add(&SimulatorCounters::segments_released);
    block = blocks_.erase(block);
  }
}

void BlockPool::queue_poison(StreamQueue& stream, std::byte* data, std::int64_t bytes) noexcept {
  if (!poison_) return;
  try {
    stream.enqueue([data, bytes] { std::memset(data, kPoisonByte, to_size(bytes)); });
  } catch (const Error&) {
    // After the program's exit began, or in a child of fork(): nobody runs that could read it.
  }
}

void BlockPool::note_out_of_memory() {
  ++stats_.num_ooms;
  counters_.add(&SimulatorCounters::out_of_memory);
}

void BlockPool::throw_out_of_memory(std::int64_t requested, std::int64_t segment) {
  note_out_of_memory();
  const std::int64_t free = std::max(std::int64_t{0}, available());
  TORCH_CHECK_WITH(OutOfMemoryError, false, device_name_, ": out of memory: ", requested,
                   " bytes requested, ", free, " free of ", capacity_, ", ", reserved(),
                   " reserved, ", stats_.allocated_bytes[0].current,
                   " allocated; it takes a new segment of ", segment, " bytes");
}

std::int64_t BlockPool::reserved() const {
  return stats_.reserved_bytes[0].current;
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
