// SPDX-License-Identifier: Apache-2.0
#include "tensor_binding.hpp"

#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <optional>
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

}  // namespace

std::vector<at::Tensor> make_views(const StagingLayout& layout,
                                   std::span<const c10::Storage> storages) {
  std::vector<at::Tensor> views;
  views.reserve(layout.tensors.size());
  std::optional<c10::InferenceMode> mode;
  std::optional<bool> mode_is_inference;
  for (const TensorRecord& record : layout.tensors) {
    if (mode_is_inference != record.is_inference) {
      mode.reset();  // Guards nest: the old one must go before the new one comes.
      mode.emplace(record.is_inference);
      mode_is_inference = record.is_inference;
    }
    c10::Storage storage = storages[record.group];
    const c10::DispatchKey key =
        c10::computeDispatchKey(record.dtype, c10::kStrided, storage.device());
    auto view = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(record.dtype));
    c10::TensorImpl* impl = view.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(record.sizes, record.strides, record.storage_offset);
    if (record.is_conj) impl->_set_conj(true);
    if (record.is_neg) impl->_set_neg(true);
    if (const auto* names = record.tensor.unsafeGetTensorImpl()->named_tensor_meta()) {
      impl->set_named_tensor_meta(names->clone());
    }
    views.push_back(std::move(view));
  }
  return views;
}

void bind(const TensorRecord& record, const at::Tensor& view) noexcept {
  c10::TensorImpl* impl = record.tensor.unsafeGetTensorImpl();
  impl->shallow_copy_from(view.getIntrusivePtr());
  forget_grad_accumulator(*impl);
}

bool is_bound_to(const TensorRecord& record, const c10::Storage& storage) noexcept {
  const c10::TensorImpl& impl = *record.tensor.unsafeGetTensorImpl();
  return impl.has_storage() &&
         impl.unsafe_storage().unsafeGetStorageImpl() == storage.unsafeGetStorageImpl() &&
         impl.dtype() == c10::scalarTypeToTypeMeta(record.dtype) &&
         impl.storage_offset() == record.storage_offset &&
         impl.sizes() == c10::IntArrayRef(record.sizes) &&
         impl.strides() == c10::IntArrayRef(record.strides) && impl.is_conj() == record.is_conj &&
         impl.is_neg() == record.is_neg;
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
