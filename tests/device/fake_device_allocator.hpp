// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/FakeGuardImpl.h>

#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace offstage {

using FakeGuard = c10::impl::FakeGuardImpl<c10::DeviceType::PrivateUse1>;

/// A DeviceAllocator that allocates nothing and says what a test tells it to say.
class FakeDeviceAllocator final : public c10::DeviceAllocator {
 public:
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {
    ++releases;
    device_at_release = FakeGuard::getDeviceIndex();
  }
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    last_index = index;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*index*/) override {}
  void resetPeakStats(c10::DeviceIndex /*index*/) override {}
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    last_index = index;
    if (!has_memory_info) return c10::DeviceAllocator::getMemoryInfo(index);
    return memory;
  }
  c10::DataPtr allocate(size_t /*bytes*/) override { return {}; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}

  c10::CachingDeviceAllocator::DeviceStats stats;
  std::pair<size_t, size_t> memory{0, 0};
  bool has_memory_info = true;
  int releases = 0;
  c10::DeviceIndex device_at_release = -1;
  c10::DeviceIndex last_index = -1;
};

/// Counts how often LibTorch initialises the device.
class FakeHooks final : public at::PrivateUse1HooksInterface {
 public:
  void init() const override { ++initialisations; }
  static inline int initialisations = 0;
};

/// Installs the allocator, a guard and the hooks for PrivateUse1, once in the process. They are
/// never removed, as LibTorch keeps pointers to them.
inline FakeDeviceAllocator& installed_allocator() {
  static FakeDeviceAllocator* const allocator = [] {
    auto* made = new FakeDeviceAllocator;
    c10::SetAllocator(c10::DeviceType::PrivateUse1, made);
    c10::impl::DeviceGuardImplRegistrar(c10::DeviceType::PrivateUse1, new FakeGuard);
    at::RegisterPrivateUse1HooksInterface(new FakeHooks);
    return made;
  }();
  return *allocator;
}

}  // namespace offstage
