// SPDX-License-Identifier: Apache-2.0
#include "device_slab.hpp"
#include "host_arena.hpp"
#include "tensor_checks.hpp"

#include <offstage/base/error.hpp>

#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <typeinfo>
#include <utility>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

[[noreturn]] void refuse(const std::string& component, const std::string& path,
                         const std::string& why) {
  throw StagingError("component '" + component + "': tensor '" + path + "' " + why);
}

}  // namespace

std::int64_t spanned_bytes(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return (last + 1) * static_cast<std::int64_t>(tensor.itemsize());
}

bool may_overlap_itself(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // Stride and last index.
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 0) return false;
    if (sizes[dim] > 1) dims.emplace_back(strides[dim], sizes[dim] - 1);
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = 0;
  for (const auto& [stride, last] : dims) {
    if (stride <= reach) return true;
    reach += stride * last;
  }
  return false;
}

void check_stageable(const at::Tensor& tensor, const std::string& path,
                     const std::string& component) {
  if (!tensor.defined()) refuse(component, path, "is undefined");
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (tensor.is_meta()) {
    refuse(component, path, "is a meta tensor: it has no data; load its weights first");
  }
  if (tensor.is_quantized()) {
    refuse(component, path, "is quantized: its scales live outside its memory");
  }
  if (tensor.layout() != c10::kStrided) {
    refuse(component, path, "is not strided; sparse and packed layouts cannot be re-bound");
  }
  if (typeid(impl) != typeid(c10::TensorImpl) || impl.is_python_dispatch() ||
      impl.has_symbolic_sizes_strides() || tensor._is_zerotensor()) {
    refuse(component, path, "is of a tensor subclass; only plain tensors can be re-bound");
  }
  if (tensor.requires_grad() && !tensor.is_leaf()) {
    refuse(component, path, "is part of an autograd graph (it has a grad_fn); detach it first");
  }
  if (!tensor.is_inference() && tensor.grad().defined()) {
    refuse(component, path, "has a gradient, which would be left behind; clear it first");
  }
  const c10::Storage& storage = impl.unsafe_storage();
  if (const std::string* owner = HostArena::staged_owner(storage.data_ptr())) {
    refuse(component, path, "is already staged by component '" + *owner + "'");
  }
  if (const std::string* owner = DeviceSlab::staged_owner(storage.data_ptr())) {
    refuse(component, path, "is already staged by component '" + *owner + "', and loaded");
  }
  if (tensor.numel() == 0) return;
  if (storage.data() == nullptr) refuse(component, path, "has elements but no memory");
  const std::int64_t end = tensor.storage_offset() * static_cast<std::int64_t>(tensor.itemsize()) +
                           spanned_bytes(tensor);
  if (end > static_cast<std::int64_t>(storage.nbytes())) {
    refuse(component, path,
           "reaches to byte " + std::to_string(end) + " of a storage of " +
               std::to_string(storage.nbytes()) + " bytes");
  }
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
