// SPDX-License-Identifier: Apache-2.0
#include "kernel_work.hpp"
#include "tensor_access.hpp"
#include "value_mapper.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// In-place operations that do not look at what was there.
bool overwrites(std::string_view name) {
  static constexpr std::array kNames = {
      "aten::copy_",       "aten::fill_",   "aten::zero_",        "aten::normal_",
      "aten::uniform_",    "aten::random_", "aten::exponential_", "aten::bernoulli_",
      "aten::log_normal_", "aten::cauchy_", "aten::geometric_"};
  return std::ranges::find(kNames, name) != kNames.end();
}

const c10::IValue* argument_named(const c10::FunctionSchema& schema,
                                  const std::vector<c10::IValue>& arguments,
                                  std::string_view name) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (schema.arguments()[i].name() == name) return &arguments[i];
  }
  return nullptr;
}

/// Whether an operation that writes piece by piece computes with the old values of the pieces.
bool accumulates(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  const auto* const accumulate = argument_named(schema, arguments, "accumulate");
  if (accumulate != nullptr && accumulate->isBool()) return accumulate->toBool();
  const auto* const self = argument_named(schema, arguments, "include_self");
  if (self != nullptr && self->isBool()) return self->toBool();
  const auto* const reduce = argument_named(schema, arguments, "reduce");
  return reduce != nullptr && reduce->isString();
}

/// True for arguments whose old values an operation passes on and does not look at: what is written
/// piece by piece need not have been written before, and a factor of 0 takes its term out.
bool passes_on(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments,
               std::size_t index) {
  if (index != 0) return false;
  std::string_view name = schema.name();
  if (name.ends_with('_')) name.remove_suffix(1);
  static constexpr std::array kPiecewise = {
      "aten::index_put",     "aten::_index_put_impl", "aten::_unsafe_index_put",
      "aten::index_copy",    "aten::index_fill",      "aten::scatter",
      "aten::masked_fill",   "aten::masked_scatter",  "aten::put",
      "aten::fill_diagonal", "aten::scatter_reduce",  "aten::index_reduce"};
  if (std::ranges::find(kPiecewise, name) != kPiecewise.end()) {
    return !accumulates(schema, arguments);
  }
  const auto* const beta = argument_named(schema, arguments, "beta");
  return beta != nullptr && beta->isScalar() && beta->toScalar().equal(0);
}

/// True for arguments of which values choose what is read: rows of a table, pages of a cache.
bool reads_some(const c10::FunctionSchema& schema, std::size_t index) {
  if (index != 0) return false;
  std::string_view name = schema.name();
  if (name.ends_with('_')) name.remove_suffix(1);
  static constexpr std::array kChosen = {
      "aten::index_select",  "aten::index",           "aten::_unsafe_index",
      "aten::gather",        "aten::embedding",       "aten::take",
      "aten::masked_select", "aten::_embedding_bag",  "aten::_embedding_bag_forward_only",
      "aten::index_put",     "aten::_index_put_impl", "aten::_unsafe_index_put",
      "aten::put",           "aten::index_add",       "aten::index_reduce",
      "aten::scatter",       "aten::scatter_add",     "aten::scatter_reduce"};
  return std::ranges::find(kChosen, name) != kChosen.end();
}

/// True for arguments that are written although the schema calls them read.
bool is_written_in_secret(const c10::FunctionSchema& schema,
                          const std::vector<c10::IValue>& arguments, std::string_view argument) {
  if (argument != "running_mean" && argument != "running_var") return false;
  const std::string_view name = schema.name();
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if ((!has("batch_norm") && !has("instance_norm")) || has("backward")) return false;
  if (has("update_stats") || has("gather_stats")) return true;
  for (const char* flag : {"training", "train", "use_input_stats"}) {
    const auto* const value = argument_named(schema, arguments, flag);
    if (value != nullptr && value->isBool()) return value->toBool();
  }
  return false;
}

const at::Tensor* tensor_at(const std::vector<c10::IValue>& arguments, std::size_t index) {
  return index < arguments.size() && arguments[index].isTensor() &&
                 arguments[index].toTensor().defined()
             ? &arguments[index].toTensor()
             : nullptr;
}

/// 2 m n k of a product of (…, m, k) and (…, k, n), given the two arguments' places.
std::int64_t flops_of_product(const std::vector<c10::IValue>& arguments, std::size_t first) {
  const at::Tensor* left = tensor_at(arguments, first);
  const at::Tensor* right = tensor_at(arguments, first + 1);
  if (left == nullptr || right == nullptr || right->dim() < 1) return 0;
  const std::int64_t columns = right->dim() < 2 ? 1 : right->size(-1);
  return 2 * left->numel() * columns;
}

/// Each element of the result is a sum over one filter.
std::int64_t flops_of_convolution(const std::vector<c10::IValue>& arguments) {
  const at::Tensor* input = tensor_at(arguments, 0);
  const at::Tensor* weight = tensor_at(arguments, 1);
  if (input == nullptr || weight == nullptr || weight->size(0) == 0 || input->dim() < 2) return 0;
  // Without strides as many places as the input has: an upper bound that needs no shape function.
  const std::int64_t places = input->numel() / std::max<std::int64_t>(1, input->size(1));
  return 2 * places * weight->numel();
}

/// Two products: queries with keys, and their weights with values.
std::int64_t flops_of_attention(const std::vector<c10::IValue>& arguments) {
  const at::Tensor* query = tensor_at(arguments, 0);
  const at::Tensor* key = tensor_at(arguments, 1);
  if (query == nullptr || key == nullptr || query->dim() < 2 || key->dim() < 2) return 0;
  return 4 * query->numel() * key->size(-2);
}

}  // namespace

Accesses accesses_of(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  Accesses accesses;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    Use use = Use::kRead;
    if (is_written(argument)) {
      use = argument.is_out() || overwrites(schema.name()) ? Use::kWrite : Use::kReadAndWrite;
    } else if (is_written_in_secret(schema, arguments, argument.name())) {
      use = Use::kReadAndWrite;
    }
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined() || tensor.is_cpu()) return;
      const std::size_t first = accesses.size();
      add_access(accesses, tensor, use);
      for (std::size_t added = first; added < accesses.size(); ++added) {
        accesses[added].may_be_unwritten = passes_on(schema, arguments, i);
        accesses[added].reads_some = reads_some(schema, i);
      }
    });
  }
  return accesses;
}

KernelWork work_of(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  KernelWork work;
  work.name = schema.name();
  for (const c10::IValue& value : arguments) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined()) work.bytes += static_cast<std::int64_t>(tensor.nbytes());
    });
  }
  const std::string_view name = schema.name();
  if (name == "aten::mm" || name == "aten::bmm" || name == "aten::mv" || name == "aten::dot") {
    work.flops = flops_of_product(arguments, 0);
  } else if (name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::addmv" ||
             name == "aten::addbmm" || name == "aten::_addmm_activation") {
    work.flops = flops_of_product(arguments, 1);
  } else if (name.find("convolution") != std::string_view::npos) {
    work.flops = flops_of_convolution(arguments);
  } else if (name.find("attention") != std::string_view::npos) {
    work.flops = flops_of_attention(arguments);
  }
  return work;
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
