// SPDX-License-Identifier: Apache-2.0
#include "device_slab.hpp"

#include <c10/core/StorageImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

void drop_slab_reference(void* slab) {
  // Takes over the reference that make_storage() gave away.
  c10::intrusive_ptr<DeviceSlab>::reclaim(static_cast<DeviceSlab*>(slab));
}

DeviceSlab::DeviceSlab(c10::Device device, std::string component)
    : device_(device), component_(std::move(component)) {}

DeviceSlab::~DeviceSlab() = default;

std::byte* DeviceSlab::allocate(std::int64_t bytes) {
  pieces_.emplace_back();  // First, so that nothing can fail once the device has given memory.
  try {
    pieces_.back() = c10::GetAllocator(device_.type())->allocate(static_cast<std::size_t>(bytes));
  } catch (...) {
    pieces_.pop_back();
    throw;
  }
  bytes_ += bytes;
  return static_cast<std::byte*>(pieces_.back().get());
}

c10::DataPtr DeviceSlab::make_pointer(std::byte* data) noexcept {
  c10::intrusive_ptr<DeviceSlab> self = c10::intrusive_ptr<DeviceSlab>::reclaim_copy(this);
  return {data, self.release(), &drop_slab_reference, device_};
}

c10::Storage DeviceSlab::make_storage(std::byte* data, std::int64_t bytes) {
  return c10::make_storage_impl(c10::StorageImpl::use_byte_size_t(), c10::SymInt(bytes),
                                make_pointer(data), /*allocator=*/nullptr, /*resizable=*/false,
                                device_);
}

void DeviceSlab::record_stream(const c10::Stream& stream) const {
  const c10::impl::VirtualGuardImpl guard(device_.type());
  for (const c10::DataPtr& piece : pieces_) guard.recordDataPtrOnStream(piece, stream);
}

const std::string* DeviceSlab::staged_owner(const c10::DataPtr& pointer) noexcept {
  const auto* slab = pointer.cast_context<DeviceSlab>(&drop_slab_reference);
  return slab != nullptr && slab->staged_ ? &slab->component_ : nullptr;
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
