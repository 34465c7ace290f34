// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What a TorchScript module holds: tensors, methods, devices, and what cannot be looked into.

#include <offstage/base/config.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace torch::jit {
struct Block;
struct Graph;
struct GraphFunction;
struct Module;
struct Node;
struct Value;
}  // namespace torch::jit

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

enum class ScriptTensorKind : std::uint8_t { kParameter, kBuffer, kAttribute, kConstant };

/// "parameter", "buffer", "attribute", "constant".
[[nodiscard]] std::string_view to_string(ScriptTensorKind kind) noexcept;

struct ScriptTensor {
  std::string path;
  at::Tensor tensor;
  ScriptTensorKind kind = ScriptTensorKind::kParameter;
  /// A constant that may stay on the host: see `is_host_number`.
  bool is_host_number = false;
};

/// A method, a hook, or a function that one of them calls.
struct ScriptFunction {
  std::string path;
  torch::jit::GraphFunction* function = nullptr;
  std::vector<torch::jit::GraphFunction*> callees;
};

/// A device in an attribute.
struct ScriptDevice {
  std::string path;
  c10::Device device = c10::Device(c10::kCPU);
  c10::intrusive_ptr<c10::ivalue::Object> owner;  ///< Null inside a list, dict or tuple.
  std::size_t slot = 0;
};

/// Something that holds weights in a form of its own.
struct ScriptPacked {
  std::string path;
  std::string what;
  std::int64_t bytes = 0;  ///< 0 if not known.
};

struct ScriptInventory {
  std::vector<ScriptTensor> tensors;      ///< Parameters, buffers, attributes, then constants.
  std::vector<ScriptFunction> functions;  ///< Callees come before their callers.
  std::vector<ScriptDevice> devices;
  std::vector<ScriptPacked> packed;
};

/// Reads the module; runs and changes nothing.
[[nodiscard]] ScriptInventory take_inventory(const torch::jit::Module& module);

/// Calls back for every node of the block, of nested blocks, and of graphs in attributes.
void for_each_node(torch::jit::Block& block, const std::function<void(torch::jit::Node&)>& visit);

/// Calls back for every value that a node keeps in its attributes.
void for_each_constant(torch::jit::Node& node,
                       const std::function<void(const c10::IValue&)>& visit);

/// The function that a call node calls; null if the node is no call, or known only at run time.
[[nodiscard]] torch::jit::GraphFunction* callee_of(torch::jit::Node& node);

/// "%12 (aten::linear input 1)"
[[nodiscard]] std::string describe(const torch::jit::Value& value);

/// The same, with the line of the source that it comes from, if it is known.
[[nodiscard]] std::string describe_with_source(const torch::jit::Value& value);

/// True for a tensor without dimensions of which every use is arithmetic or a comparison, which
/// take a number of the host beside tensors of any device, or reads it on the host.
[[nodiscard]] bool is_host_number(const torch::jit::Value& value, const at::Tensor& tensor);

/// Why the node computes with packed weights; empty if it does not.
[[nodiscard]] std::string packed_operation(const torch::jit::Node& node);

}  // namespace detail
OFFSTAGE_NAMESPACE_END
