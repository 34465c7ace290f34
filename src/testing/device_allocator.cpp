// SPDX-License-Identifier: Apache-2.0
#include "registration.hpp"
#include "runtime.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

void free_block(void* data) noexcept {
  Runtime& runtime = Runtime::get();
  for (c10::DeviceIndex i = 0; i < runtime.device_count(); ++i) {
    if (runtime.device(i).pool.free(data)) return;
  }
}

c10::DataPtr allocate_on_current_stream(std::size_t bytes) {
  Runtime& runtime = Runtime::get();
  const c10::DeviceIndex index = Runtime::current_device();
  const c10::Device device(kSimulated, index);
  if (bytes == 0) return {nullptr, device};
  try {
    runtime.faults().enter(FaultPoint::kAllocate);
  } catch (const c10::OutOfMemoryError&) {
    runtime.device(index).pool.count_out_of_memory();
    throw;
  }
  void* data = runtime.device(index).pool.allocate(static_cast<std::int64_t>(bytes),
                                                   runtime.current_queue(index));
  return {data, data, &free_block, device};
}

// LibTorch asks allocators to copy only when it clones a storage; both are of the current device.
void copy_on_current_stream(void* dest, const void* src, std::size_t count) {
  copy_bytes("clone of a storage", Runtime::current_device(), dest, src,
             static_cast<std::int64_t>(count));
}

using Stats = c10::CachingDeviceAllocator::DeviceStats;

/// What an allocator that keeps its books in that way would say.
Stats shown(const Stats& stats, SimulatedStatistics kind) {
  Stats shown;
  switch (kind) {
    case SimulatedStatistics::kComplete:
      return stats;
    case SimulatedStatistics::kPartial:
      shown.reserved_bytes = stats.reserved_bytes;
      shown.allocated_bytes = stats.allocated_bytes;
      return shown;
    case SimulatedStatistics::kWrong:
      shown.reserved_bytes[0].current = -1;
      shown.allocated_bytes = stats.allocated_bytes;
      return shown;
    case SimulatedStatistics::kAbsent:
      break;
  }
  return shown;
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override { return allocate_on_current_stream(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    copy_on_current_stream(dest, src, count);
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override { Runtime::get().empty_cache(); }

  void recordStream(const c10::DataPtr& block, c10::Stream stream) override {
    record_block_on_stream(block, stream);
  }

  Stats getDeviceStats(c10::DeviceIndex index) override {
    Runtime::get().host_call(FaultPoint::kStatistics);
    return shown(Runtime::get().device(index).pool.stats(), Runtime::get().statistics);
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    Runtime::get().device(index).pool.reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    Runtime::get().device(index).pool.reset_peaks();
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex index) override {
    Runtime::get().host_call(FaultPoint::kStatistics);
    const BlockPool& pool = Runtime::get().device(index).pool;
    const auto free = static_cast<std::size_t>(pool.free_bytes());
    const auto total = static_cast<std::size_t>(pool.capacity());
    switch (Runtime::get().statistics.load()) {
      case SimulatedStatistics::kAbsent:
        return {0, 0};
      case SimulatedStatistics::kWrong:
        return {total + 1, total};
      default:
        return {free, total};
    }
  }
};

class PlainAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override { return allocate_on_current_stream(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    copy_on_current_stream(dest, src, count);
  }
};

}  // namespace

void record_block_on_stream(const c10::DataPtr& block, const c10::Stream& stream) {
  if (block.get() == nullptr || block.get_deleter() != &free_block) return;
  Runtime& runtime = Runtime::get();
  runtime.device(block.device().index())
      .pool.record_stream(block.get_context(), runtime.queue(stream));
}

void register_allocator(bool is_device_allocator) {
  c10::Allocator* const allocator =
      is_device_allocator ? static_cast<c10::Allocator*>(new DeviceAllocator) : new PlainAllocator;
  c10::SetAllocator(kSimulated, allocator);
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
