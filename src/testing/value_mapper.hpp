// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The tensors in the arguments of an operation, wherever they are.

#include <offstage/base/config.hpp>

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// Visits every tensor of a value, those in lists too. Some may be undefined.
inline void for_each_tensor(const c10::IValue& value,
                            const std::function<void(const at::Tensor&)>& visit) {
  value.visit([&](const c10::IValue& part) {
    if (part.isTensor()) visit(part.toTensor());
    return false;  // Look inside as well.
  });
}

/// Replaces every tensor of a value, the same one by the same one, and every device.
class ValueMapper {
 public:
  ValueMapper(c10::Device device, std::function<at::Tensor(const at::Tensor&)> map)
      : device_(device), map_(std::move(map)) {}

  c10::IValue operator()(const c10::IValue& value) {
    if (value.isTensor()) return map(value.toTensor());
    if (value.isDevice()) return device_;
    if (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
      // By element: LibTorch knows its own lists of optional tensors by the address of their type,
      // and those of a TorchScript program have another.
      c10::impl::GenericList list(value.toList().elementType());
      for (const c10::IValue& element : value.toListRef()) list.push_back((*this)(element));
      return list;
    }
    return value;
  }

  std::vector<c10::IValue> operator()(const std::vector<c10::IValue>& values) {
    std::vector<c10::IValue> mapped;
    mapped.reserve(values.size());
    for (const c10::IValue& value : values) mapped.push_back((*this)(value));
    return mapped;
  }

 private:
  at::Tensor map(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    at::Tensor& mapped = known_[tensor.unsafeGetTensorImpl()];
    if (!mapped.defined()) mapped = map_(tensor);
    return mapped;
  }

  c10::Device device_;
  std::function<at::Tensor(const at::Tensor&)> map_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> known_;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
