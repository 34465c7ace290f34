// SPDX-License-Identifier: Apache-2.0
#include "host_memory.hpp"
#include "pinned_ranges.hpp"
#include "registration.hpp"
#include "runtime.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <algorithm>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return index >= 0 && index < deviceCount();
  }

  c10::DeviceIndex deviceCount() const override { return Runtime::get().device_count(); }
  c10::DeviceIndex getCurrentDevice() const override { return Runtime::current_device(); }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    Runtime::set_current_device(Runtime::get().check(index));
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex old = getCurrentDevice();
    setCurrentDevice(index);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }

  bool isPinnedPtr(const void* data) const override {
    return PinnedRanges::get().classify(data, 1) == PinnedState::kPinned;
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return &SimulatedHostAllocator::get();
  }

  at::Device getDeviceFromPtr(void* data) const override {
    Runtime& runtime = Runtime::get();
    c10::DeviceIndex owner = 0;
    while (owner < runtime.device_count() && !runtime.device(owner).pool.contains(data)) ++owner;
    TORCH_CHECK(owner < runtime.device_count(),
                "simulated accelerator: this address is not in its memory");
    return {kSimulated, owner};
  }

  // Random numbers are the CPU's, so that a seed gives the same numbers on both.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*index*/) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex /*index*/) const override {
    return at::detail::createCPUGenerator();
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

}  // namespace

void resize_storage(const c10::Storage& storage, std::size_t bytes) {
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceIndex index = storage.device().index();
  const c10::DeviceIndex old_index = Runtime::current_device();
  Runtime::set_current_device(index);
  c10::DataPtr data;
  try {
    data = c10::GetAllocator(kSimulated)->allocate(bytes);
  } catch (...) {
    Runtime::set_current_device(old_index);
    throw;
  }
  Runtime::set_current_device(old_index);
  if (const std::size_t kept = std::min(bytes, impl->nbytes()); kept > 0) {
    copy_bytes("copy of a resized storage", index, data.get(), impl->data_ptr().get(),
               static_cast<std::int64_t>(kept));
    // The old block may be of another stream, which would reuse it before this copy ran.
    record_block_on_stream(impl->data_ptr(), Runtime::get().current_stream(index));
  }
  impl->set_data_ptr_noswap(std::move(data));
  impl->set_nbytes(bytes);
}

void register_hooks() {
  at::setHostAllocator(kSimulated, &SimulatedHostAllocator::get());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  // Before that LibTorch takes no host memory for pinned.
  at::globalContext().lazyInitDevice(kSimulated);
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
