// SPDX-License-Identifier: Apache-2.0
#include "host_memory.hpp"
#include "pinned_ranges.hpp"
#include "runtime.hpp"

#include <offstage/base/error.hpp>

#include <algorithm>
#include <bit>
#include <sys/mman.h>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

SimulatedHostAllocator& SimulatedHostAllocator::get() {
  static auto* const allocator = new SimulatedHostAllocator;
  return *allocator;
}

at::DataPtr SimulatedHostAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &SimulatedHostAllocator::free, at::kCPU};
  Runtime::get().host_call(FaultPoint::kPin);
  const std::lock_guard lock(mutex_);
  give_up_unused();
  if (rounding_) bytes = std::bit_ceil(bytes);
  const auto size = static_cast<std::int64_t>(bytes);
  const auto fitting =
      std::ranges::find_if(cached_, [size](const Block& block) { return block.bytes == size; });
  void* data = nullptr;
  if (fitting != cached_.end()) {
    data = fitting->data;
    cached_.erase(fitting);
  } else {
    data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(data != MAP_FAILED, "simulated accelerator: no ", bytes, " bytes of host memory");
    PinnedRanges::get().add(data, size);
    Runtime::get().monitor().watch_host(data, size);
    stats_.allocations.increase(1);
    stats_.allocated_bytes.increase(bytes);
    ++stats_.num_host_alloc;
  }
  blocks_.emplace(data, Block{data, size, {}});
  stats_.active_requests.increase(1);
  stats_.active_bytes.increase(bytes);
  return {data, data, &SimulatedHostAllocator::free, at::kCPU};
}

void SimulatedHostAllocator::copy_data(void* dest, const void* src, std::size_t count) const {
  default_copy_data(dest, src, count);
}

std::map<void*, SimulatedHostAllocator::Block>::iterator SimulatedHostAllocator::block_of(
    void* address) {
  auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin()) return blocks_.end();
  --block;
  const auto* const first = static_cast<const std::byte*>(block->second.data);
  return address < first + block->second.bytes ? block : blocks_.end();
}

// By the address: a view that LibTorch does not know of (`from_blob`) has a context of its own.
bool SimulatedHostAllocator::record_event(void* ptr, void* ctx, c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  auto block = block_of(ptr);
  if (block == blocks_.end()) block = blocks_.find(ctx);
  if (block == blocks_.end()) return false;
  std::vector<Mark>& users = block->second.users;
  Monitor& monitor = Runtime::get().monitor();
  std::erase_if(users, [](const Mark& user) { return user.marker.reached(); });
  users.push_back(monitor.mark(Runtime::get().queue(stream)));
  return true;
}

void SimulatedHostAllocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  give_up_unused();
  for (const Block& block : cached_) unmap(block);
  cached_.clear();
}

at::HostStats SimulatedHostAllocator::get_stats() {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void SimulatedHostAllocator::reset_accumulated_stats() {
  const std::lock_guard lock(mutex_);
  for (auto* stat : {&stats_.allocations, &stats_.active_requests, &stats_.allocated_bytes,
                     &stats_.active_bytes}) {
    stat->reset_accumulated();
  }
  stats_.num_host_alloc = 0;
  stats_.num_host_free = 0;
}

void SimulatedHostAllocator::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  for (auto* stat : {&stats_.allocations, &stats_.active_requests, &stats_.allocated_bytes,
                     &stats_.active_bytes}) {
    stat->reset_peak();
  }
}

void SimulatedHostAllocator::set_rounding(bool on) {
  const std::lock_guard lock(mutex_);
  rounding_ = on;
}

void SimulatedHostAllocator::set_caching(bool on) {
  const std::lock_guard lock(mutex_);
  caching_ = on;
}

void SimulatedHostAllocator::collect() {
  const std::lock_guard lock(mutex_);
  give_up_unused();
}

void SimulatedHostAllocator::free(void* data) noexcept {
  SimulatedHostAllocator& self = get();
  const std::lock_guard lock(self.mutex_);
  const auto block = self.blocks_.find(data);
  if (block == self.blocks_.end()) return;  // The null block.
  self.stats_.active_requests.decrease(1);
  self.stats_.active_bytes.decrease(static_cast<std::size_t>(block->second.bytes));
  self.freed_.push_back(std::move(block->second));
  self.blocks_.erase(block);
  self.give_up_unused();
}

void SimulatedHostAllocator::give_up_unused() {
  std::erase_if(freed_, [this](const Block& block) {
    const bool unused =
        std::ranges::all_of(block.users, [](const Mark& user) { return user.marker.reached(); });
    if (!unused) return false;
    if (caching_) {
      cached_.push_back({block.data, block.bytes, {}});
    } else {
      unmap(block);
    }
    return true;
  });
}

void SimulatedHostAllocator::unmap(const Block& block) {
  PinnedRanges::get().remove(block.data, block.bytes);
  Runtime::get().monitor().forget_host(block.data, block.bytes);
  Runtime::get().monitor().bury(block.data, block.bytes);
  stats_.allocations.decrease(1);
  stats_.allocated_bytes.decrease(static_cast<std::size_t>(block.bytes));
  ++stats_.num_host_free;
}

void SimulatedHostMemory::free(void* data, std::int64_t bytes) noexcept {
  Monitor& monitor = Runtime::get().monitor();
  for (const auto& [first, length] : PinnedRanges::get().take(data, bytes)) {
    monitor.free_host(first, length);
  }
  monitor.bury(data, bytes);
}

void SimulatedHostMemory::pin(void* data, std::int64_t bytes) {
  Runtime::get().host_call(FaultPoint::kRegister);
  PinnedRanges::get().add(data, bytes);
  Runtime::get().monitor().watch_host(data, bytes);
}

void SimulatedHostMemory::unpin(void* data, std::int64_t bytes) {
  Runtime::get().host_call(FaultPoint::kUnregister);
  // Whoever lets go of memory may change or free it next.
  Runtime::get().monitor().host_access("unregistering of host memory", data, bytes,
                                       /*writes=*/true);
  PinnedRanges::get().remove(data, bytes);
  Runtime::get().monitor().forget_host(data, bytes);
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
