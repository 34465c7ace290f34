// SPDX-License-Identifier: Apache-2.0
#include "kernel_library.hpp"
#include "registration.hpp"
#include "runtime.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>

#include <optional>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::DeviceGuard guard_device(std::optional<c10::Device> device) {
  return c10::DeviceGuard(
      {kSimulated, Runtime::get().check(device ? device->index() : c10::DeviceIndex{-1})});
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> /*pin_memory*/, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(c10::layout_or_default(layout) == at::kStrided,
              "simulated accelerator: only strided tensors");
  const auto guard = guard_device(device);
  return at::detail::empty_generic(size, c10::GetAllocator(kSimulated), kKeys,
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> /*pin_memory*/) {
  TORCH_CHECK(c10::layout_or_default(layout) == at::kStrided,
              "simulated accelerator: only strided tensors");
  const auto guard = guard_device(device);
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(kSimulated), kKeys,
                                           c10::dtype_or_default(dtype));
}

void grow_storage(const at::Tensor& self, std::size_t bytes) {
  if (self.storage().nbytes() < bytes) resize_storage(self.storage(), bytes);
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> format) {
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) impl->set_sizes_contiguous(size);
  if (format) impl->empty_tensor_restride(*format);
  grow_storage(self,
               at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize(),
                                                static_cast<std::size_t>(self.storage_offset())));
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset,
                        at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.size() == size.size()) {
    impl->set_sizes_and_strides(size, stride);
  } else {
    impl->set_sizes_contiguous(size);
  }
  grow_storage(self, at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize(),
                                                      static_cast<std::size_t>(offset)));
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<std::int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {elements}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(),
                     source.strides());
}

void record_stream(at::Tensor& self, at::Stream stream) {
  record_block_on_stream(self.storage().data_ptr(), stream);
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

}  // namespace

void register_factories_and_views() {
  torch::Library& library = add_library("aten");
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("resize_", &resize);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Storage", &set_whole_storage);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("record_stream", &record_stream);
  library.impl("as_strided", &as_strided);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("view_as_complex", &at::native::view_as_complex);
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
