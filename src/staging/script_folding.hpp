// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Does to a TorchScript graph early what its executor would do at the first run.

#include <offstage/base/config.hpp>

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
struct GraphFunction;
struct Node;
struct Value;
}  // namespace torch::jit

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// A device constant of a graph.
struct BakedDevice {
  std::string where;  ///< Node, use and line.
  c10::Device device = c10::Device(c10::kCPU);
  std::int64_t uses = 0;
};

/// A device without an index stands for each of its type.
[[nodiscard]] bool is_same_device(c10::Device named, c10::Device target) noexcept;

/// Evaluates what has neither tensors nor side effects, such as the string in
/// `torch.device("cpu")`, and drops what is not used. Blocks of decided ifs become part of the
/// graph.
void fold_plain_values(std::shared_ptr<torch::jit::Graph>& graph);

/// The device constants that are used and are not `target`.
[[nodiscard]] std::vector<BakedDevice> baked_devices(torch::jit::Graph& graph, c10::Device target);

/// Sets every device constant. @return whether one of them changed.
bool set_devices(torch::jit::Graph& graph, c10::Device device);

/// What folding found.
struct DerivedConstant {
  std::string where;
  std::int64_t bytes = 0;
};

/// Evaluates whatever depends on nothing but constants and among them on a tensor or a device.
/// Tensors made without naming a device are not touched.
///
/// Everything is computed on `home`, where the tensors are, whatever devices the graph names;
/// afterwards it names `target`.
/// @return the tensors that became constants by it and are still used; empty: the graph may still
///         have changed, but without effect on where tensors are.
[[nodiscard]] std::vector<DerivedConstant> fold_derived(std::shared_ptr<torch::jit::Graph>& graph,
                                                        c10::Device home, c10::Device target);

/// The graph that stands for a function.
using GraphOf = std::function<torch::jit::Graph&(torch::jit::GraphFunction&)>;

/// Replaces every call by the callee's graph. @return whether there was one.
bool inline_calls(torch::jit::Graph& graph, const GraphOf& graph_of);

/// Makes `graph` the same as `source`; whoever holds the graph sees that.
void assign(torch::jit::Graph& graph, torch::jit::Graph& source);

/// True if the function has an executor: it has run, and a change of its graph has no effect any
/// more.
[[nodiscard]] bool has_executor(const torch::jit::GraphFunction& function);

}  // namespace detail
OFFSTAGE_NAMESPACE_END
