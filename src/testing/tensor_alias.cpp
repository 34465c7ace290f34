// SPDX-License-Identifier: Apache-2.0
#include "tensor_alias.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/from_blob.h>

#include <cstring>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

at::Tensor alias_on_cpu(const at::Tensor& tensor) {
  at::Tensor alias = at::for_blob(tensor.data_ptr(), tensor.sizes())
                         .strides(tensor.strides())
                         .options(at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU))
                         .target_device(at::kCPU)
                         .make_tensor();
  alias._set_conj(tensor.is_conj());
  alias._set_neg(tensor.is_neg());
  return alias;
}

std::int64_t hull_bytes(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize()));
}

void copy_on_worker(const at::Tensor& to, const at::Tensor& from) {
  const bool same_layout = to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes() &&
                           to.strides() == from.strides() && to.is_conj() == from.is_conj() &&
                           to.is_neg() == from.is_neg() && to.is_non_overlapping_and_dense();
  if (same_layout) {
    std::memcpy(to.data_ptr(), from.data_ptr(), to.nbytes());
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::_ops::copy_::call(const_cast<at::Tensor&>(to), from, /*non_blocking=*/false);
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
