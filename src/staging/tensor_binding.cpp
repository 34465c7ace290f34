// SPDX-License-Identifier: Apache-2.0
#include "tensor_binding.hpp"

#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

/// A graph that is still alive keeps the tensor's accumulator, which expects gradients on the
/// device that the tensor was on. The next forward pass must make a new one.
void forget_grad_accumulator(const c10::TensorImpl& impl) noexcept {
  auto* const meta = static_cast<torch::autograd::AutogradMeta*>(impl.autograd_meta());
  if (meta == nullptr || !meta->requires_grad_) return;
  const std::lock_guard lock(meta->mutex_);
  meta->grad_accumulator_.reset();
}

/// As `==`, inlined: most tensors have one or two dimensions.
template <class List>
bool is_equal(c10::IntArrayRef a, const List& b) noexcept {
  if (a.size() != b.size()) return false;
  for (std::size_t dim = 0; dim < b.size(); ++dim) {
    if (a[dim] != b[dim]) return false;
  }
  return true;
}

}  // namespace

at::Tensor make_view(const TensorRecord& record, const c10::Storage& storage) {
  const c10::InferenceMode mode(record.is_inference);
  const c10::DispatchKey key =
      c10::computeDispatchKey(record.dtype, c10::kStrided, storage.device());
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(record.dtype));
  c10::TensorImpl* impl = view.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(record.sizes, record.strides, record.storage_offset);
  if (record.is_conj) impl->_set_conj(true);
  if (record.is_neg) impl->_set_neg(true);
  return view;
}

void bind(const TensorRecord& record, const c10::Storage& storage) noexcept {
  c10::TensorImpl& impl = *record.tensor.unsafeGetTensorImpl();
  impl.set_allow_tensor_metadata_change(true);  // It is false for what detach() returns.
  impl.set_storage_keep_dtype(storage);
  if (impl.storage_offset() != record.storage_offset) {
    impl.set_storage_offset(record.storage_offset);
  }
  impl._change_backend_component_keys(storage.device());
  forget_grad_accumulator(impl);
}

bool is_bound_to(const TensorRecord& record, const c10::Storage& storage) noexcept {
  const c10::TensorImpl& impl = *record.tensor.unsafeGetTensorImpl();
  return impl.has_storage() &&
         impl.unsafe_storage().unsafeGetStorageImpl() == storage.unsafeGetStorageImpl() &&
         impl.dtype() == c10::scalarTypeToTypeMeta(record.dtype) &&
         impl.storage_offset() == record.storage_offset && is_equal(impl.sizes(), record.sizes) &&
         is_equal(impl.strides(), record.strides) && impl.is_conj() == record.is_conj &&
         impl.is_neg() == record.is_neg;
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
