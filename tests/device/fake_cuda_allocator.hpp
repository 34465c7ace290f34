// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/FakeGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace offstage {

/// A CUDA allocator that allocates nothing and says what a test tells it to say.
class FakeCudaAllocator final : public c10::cuda::CUDACachingAllocator::CUDAAllocator {
 public:
  using Index = c10::DeviceIndex;
  using Pool = c10::MempoolId_t;

  bool initialized() override { return true; }
  void emptyCache(Pool /*pool*/) override { ++releases; }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(Index index) override {
    ++stats_queries;
    last_index = index;
    return stats;
  }
  std::pair<size_t, size_t> getMemoryInfo(Index index) override {
    last_index = index;
    TORCH_CHECK(has_memory_info, "no figures");
    return memory;
  }
  double getMemoryFraction(Index index) override {
    last_index = index;
    return fraction;
  }
  std::string name() override { return backend; }

  c10::DataPtr allocate(size_t /*bytes*/) override { return {}; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}
  void resetAccumulatedStats(Index /*index*/) override {}
  void resetPeakStats(Index /*index*/) override {}
  void* raw_alloc(size_t /*bytes*/) override { return nullptr; }
  void* raw_alloc_with_stream(size_t /*bytes*/, cudaStream_t /*stream*/) override {
    return nullptr;
  }
  void raw_delete(void* /*data*/) override {}
  void init(int /*devices*/) override {}
  void setMemoryFraction(double /*fraction*/, Index /*index*/) override {}
  std::vector<c10::cuda::CUDACachingAllocator::StreamSegmentSize> getExpandableSegmentSizes(
      Index /*index*/) override {
    return {};
  }
  void enable(bool /*value*/) override {}
  bool isEnabled() const override { return true; }
  void cacheInfo(Index /*index*/, size_t* /*largest*/) override {}
  void* getBaseAllocation(void* data, size_t* /*bytes*/) override { return data; }
  void recordStream(const c10::DataPtr& /*data*/, c10::cuda::CUDAStream /*stream*/) override {}
  c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot(Pool /*pool*/, bool /*traces*/) override {
    return {};
  }
  void beginAllocateToPool(Index /*index*/, Pool /*pool*/,
                           std::function<bool(cudaStream_t)> /*filter*/) override {}
  void endAllocateToPool(Index /*index*/, Pool /*pool*/) override {}
  void releasePool(Index /*index*/, Pool /*pool*/) override {}
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void* /*data*/) override {
    return {};
  }
  std::shared_ptr<void> getIpcDevPtr(std::string /*handle*/) override { return nullptr; }
  void recordHistory(bool /*enabled*/,
                     c10::cuda::CUDACachingAllocator::CreateContextFn /*recorder*/,
                     size_t /*entries*/, c10::cuda::CUDACachingAllocator::RecordContext /*when*/,
                     bool /*clear*/, const std::vector<std::string>& /*skip*/) override {}
  void attachOutOfMemoryObserver(
      c10::cuda::CUDACachingAllocator::OutOfMemoryObserver /*observer*/) override {}
  void attachAllocatorTraceTracker(
      c10::cuda::CUDACachingAllocator::AllocatorTraceTracker /*tracker*/) override {}
  void enablePeerAccess(Index /*from*/, Index /*to*/) override {}
  cudaError_t memcpyAsync(void* /*to*/, int /*to_device*/, const void* /*from*/,
                          int /*from_device*/, size_t /*bytes*/, cudaStream_t /*stream*/,
                          bool /*peer*/) override {
    return cudaSuccess;
  }
  std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> getCheckpointState(
      Index /*index*/, Pool /*pool*/) override {
    return nullptr;
  }
  c10::cuda::CUDACachingAllocator::CheckpointDelta setCheckpointPoolState(
      Index /*index*/,
      std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> /*state*/) override {
    return {};
  }

  c10::CachingDeviceAllocator::DeviceStats stats;
  std::pair<size_t, size_t> memory{0, 0};
  bool has_memory_info = true;
  double fraction = 1.0;
  std::string backend = "native";
  int releases = 0;
  int stats_queries = 0;
  Index last_index = -1;
};

/// LibTorch's part that needs no more of CUDA than its name.
class FakeCudaHooks final : public at::CUDAHooksInterface {
 public:
  explicit FakeCudaHooks(at::CUDAHooksArgs /*arguments*/) {}
  void init() const override {}
};

namespace fake_cuda {
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", FakeCudaHooks)
}  // namespace fake_cuda

/// Puts the allocator, a guard and the hooks in CUDA's place, once in the process, which therefore
/// has no CUDA any more.
inline FakeCudaAllocator& installed_cuda_allocator() {
  static FakeCudaAllocator* const allocator = [] {
    auto* made = new FakeCudaAllocator;
    c10::cuda::CUDACachingAllocator::allocator.store(made);
    c10::SetAllocator(c10::DeviceType::CUDA, made, /*priority=*/255);
    c10::impl::DeviceGuardImplRegistrar(c10::DeviceType::CUDA,
                                        new c10::impl::FakeGuardImpl<c10::DeviceType::CUDA>);
    return made;
  }();
  return *allocator;
}

}  // namespace offstage
