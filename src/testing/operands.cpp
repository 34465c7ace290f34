// SPDX-License-Identifier: Apache-2.0
#include "operands.hpp"
#include "pinned_ranges.hpp"
#include "runtime.hpp"
#include "tensor_access.hpp"
#include "tensor_alias.hpp"
#include "value_mapper.hpp"

#include <ATen/EmptyTensor.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

using torch::jit::Stack;

// Index tensors may be on the host, as on CUDA, and batch sizes always are.
bool takes_host_tensors(const c10::OperatorHandle& op) {
  const std::string_view name = op.schema().name();
  return name == "aten::index" || name == "aten::_unsafe_index" ||
         name == "aten::_index_put_impl_" || op.schema().overload_name() == "data";
}

void keep_number_flag(const at::Tensor& from, const at::Tensor& to) {
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) {
    to.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
}

}  // namespace

bool is_simulated(const at::Tensor& tensor) {
  return tensor.device().type() == kSimulated;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

c10::DeviceIndex common_device(const c10::OperatorHandle& op, const Stack& arguments) {
  std::optional<c10::Device> device;
  const bool host_tensors = takes_host_tensors(op);
  const auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (tensor.is_cpu() && (tensor.dim() == 0 || host_tensors)) return;
    if (!device) device = tensor.device();
    TORCH_CHECK(tensor.device() == *device && is_simulated(tensor),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                *device, " and ", tensor.device(), ", in ", op.operator_name(),
                " (or none on the simulated accelerator)");
  };
  for (const c10::IValue& value : arguments) for_each_tensor(value, look);
  if (!device) {
    for (const c10::IValue& value : arguments) {
      if (value.isDevice()) device = value.toDevice();
    }
  }
  TORCH_CHECK(device && device->type() == kSimulated, "simulated accelerator: ", op.operator_name(),
              " names no device");
  return Runtime::get().check(device->index());
}

void check_host_operands(const c10::OperatorHandle& op, const Stack& arguments) {
  const auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cpu() || tensor.numel() == 0 ||
        tensor.unsafeGetTensorImpl()->is_wrapped_number() ||
        PinnedRanges::get().classify(tensor.const_data_ptr(), 1) == PinnedState::kPageable) {
      return;
    }
    Accesses accesses;
    add_access(accesses, tensor, Use::kRead);
    Runtime::get().monitor().host_access("host operand of " + op.schema().name(),
                                         std::move(accesses));
  };
  for (const c10::IValue& value : arguments) for_each_tensor(value, look);
}

at::Tensor to_operand(const at::Tensor& tensor) {
  if (is_simulated(tensor)) return alias_on_cpu(tensor);
  at::Tensor copy = at::detail::empty_cpu(tensor.sizes(), tensor.scalar_type());
  copy_on_worker(copy, tensor);
  keep_number_flag(tensor, copy);
  return copy;
}

at::Tensor to_meta(const at::Tensor& tensor) {
  at::Tensor meta =
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  meta._set_conj(tensor.is_conj());
  keep_number_flag(tensor, meta);
  return meta;
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
