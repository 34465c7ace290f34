// SPDX-License-Identifier: Apache-2.0
#include "script_folding.hpp"
#include "script_inventory.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>

#include <algorithm>
#include <array>
#include <optional>
#include <ranges>
#include <set>
#include <unordered_set>
#include <utility>

// A function keeps its executors to itself, and each public way to ask for one makes it, from the
// graph as it is then, and for good. `GraphExecutor::isOptimized` is no answer either: it turns
// true with the second run, and the first has fixed the graph already. So the member is named in an
// explicit instantiation, where the language does not check access.
namespace {

using Executors = std::array<std::optional<torch::jit::GraphExecutor>, 4>;  // By autocast mode.

struct ExecutorsOfFunction {
  using Member = Executors torch::jit::GraphFunction::*;
  friend Member member_of(ExecutorsOfFunction);
};

template <class Tag, typename Tag::Member member>
struct Reveal {
  friend typename Tag::Member member_of(Tag /*tag*/) { return member; }
};

template struct Reveal<ExecutorsOfFunction, &torch::jit::GraphFunction::executors_>;

}  // namespace

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// Folding can decide an if, and what is in its block can then be folded. More rounds than ifs that
// nest in such a way.
constexpr int kRoundsMax = 16;

bool is_device_constant(const Node& node) {
  return node.kind() == c10::prim::Constant &&
         node.output()->type()->kind() == c10::TypeKind::DeviceObjType &&
         node.hasAttribute(c10::attr::value);
}

/// The device in a constant, or in the name of an operation: `x.cpu()`.
std::optional<c10::Device> device_named_by(const Node& node) {
  static const auto cpu_operation = c10::Symbol::fromQualString("aten::cpu");
  static const auto cuda_operation = c10::Symbol::fromQualString("aten::cuda");
  if (is_device_constant(node)) return c10::Device(node.s(c10::attr::value));
  if (node.kind() == cpu_operation) return c10::Device(c10::kCPU);
  if (node.kind() == cuda_operation) return c10::Device(c10::kCUDA);
  return std::nullopt;
}

std::set<const c10::TensorImpl*> tensors_in(const c10::IValue& value) {
  std::set<const c10::TensorImpl*> found;
  value.visit([&](const c10::IValue& part) {
    if (part.isTensor() && part.toTensor().defined()) {
      found.insert(part.toTensor().unsafeGetTensorImpl());
    }
    return false;
  });
  return found;
}

/// A view knows the tensor that it was made from and keeps that one, which nobody would re-bind.
c10::IValue without_bases(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) return value.toTensor().variable_data();
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : value.toTensorVector()) {
    list.push_back(tensor.defined() ? tensor.variable_data() : tensor);
  }
  return list;
}

std::int64_t tensor_bytes(const c10::IValue& value) {
  std::int64_t bytes = 0;
  value.visit([&](const c10::IValue& part) {
    if (part.isTensor() && part.toTensor().defined()) {
      bytes += static_cast<std::int64_t>(part.toTensor().nbytes());
    }
    return false;
  });
  return bytes;
}

/// Evaluates the nodes of a graph that depend on constants only, among them a tensor or a device.
class DerivedFolder {
 public:
  explicit DerivedFolder(std::shared_ptr<Graph> graph)
      : graph_(std::move(graph)), aliases_(graph_) {}

  void run() {
    fold(*graph_->block());
    give_back_the_rest();
  }

  [[nodiscard]] const std::vector<Value*>& derived() const noexcept { return derived_; }

 private:
  struct Folded {
    Value* original;
    Value* constant;
    bool holds_tensor;
    bool is_new;  // It depends on a tensor or a device, and holds a tensor that no input holds.
  };

  void fold(Block& block) {
    for (auto it = block.nodes().begin(); it != block.nodes().end();) {
      Node* const node = *it++;
      for (Block* const nested : node->blocks()) fold(*nested);
      if (may_fold(*node)) fold(*node);
    }
  }

  [[nodiscard]] bool may_fold(Node& node) const {
    static const std::array kSkipped = {
        c10::prim::Constant,     c10::prim::If,           c10::prim::Loop,
        c10::prim::Closure,      c10::prim::AutogradZero, c10::prim::Uninitialized,
        c10::prim::Guard,        c10::prim::profile,      c10::prim::profile_ivalue,
        c10::prim::CreateObject, c10::prim::GetAttr,      c10::prim::unchecked_unwrap_optional,
        c10::prim::awaitable};
    if (std::find(kSkipped.begin(), kSkipped.end(), node.kind()) != kSkipped.end()) return false;
    const bool is_constant = std::all_of(
        node.inputs().begin(), node.inputs().end(),
        [](const Value* input) { return input->node()->kind() == c10::prim::Constant; });
    if (!is_constant || !node.blocks().empty() || node.outputs().empty()) return false;
    if (node.isNondeterministic() || node.hasSideEffects() || aliases_.hasWriters(&node)) {
      return false;
    }
    // What a device is asked for was answered with the devices that the graph really names.
    const bool has_device =
        std::any_of(node.inputs().begin(), node.inputs().end(),
                    [](const Value* input) { return is_device_constant(*input->node()); });
    return !has_device || node.output(0)->type()->isSubtypeOf(*c10::TensorType::get()) ||
           node.kind() == c10::prim::ListConstruct || node.kind() == c10::prim::TupleConstruct;
  }

  void fold(Node& node) {
    const auto outputs = torch::jit::runNodeIfInputsAreConstant(&node);
    if (!outputs || outputs->size() != node.outputs().size()) return;
    const bool depends =
        std::any_of(node.inputs().begin(), node.inputs().end(),
                    [this](const Value* input) { return depends_on_device(*input); });
    std::set<const c10::TensorImpl*> known;
    for (const Value* const input : node.inputs()) {
      known.merge(tensors_in(torch::jit::toIValue(input).value_or(c10::IValue())));
    }
    const torch::jit::WithInsertPoint here(&node);
    for (std::size_t i = 0; i < outputs->size(); ++i) {
      const std::set<const c10::TensorImpl*> made = tensors_in(outputs->at(i));
      const bool is_new =
          depends && !std::includes(known.begin(), known.end(), made.begin(), made.end());
      const auto constant = torch::jit::tryInsertConstant(
          *graph_, is_new ? without_bases(outputs->at(i)) : outputs->at(i));
      if (!constant) continue;
      Value* const original = node.output(i);
      (depends ? dependent_ : plain_).insert(*constant);
      (*constant)->node()->setSourceRange(node.sourceRange());
      original->replaceAllUsesWith(*constant);
      folded_.push_back({original, *constant, !made.empty(), is_new});
    }
  }

  /// On where a tensor or a named device is.
  [[nodiscard]] bool depends_on_device(const Value& input) const {
    if (dependent_.count(&input) != 0) return true;
    if (plain_.count(&input) != 0) return false;
    const auto value = torch::jit::toIValue(&input);
    return value && (value->isDevice() || !tensors_in(*value).empty());
  }

  /// Left alone is what was made of numbers alone, which each run makes again, and what only holds
  /// tensors that are constants already, such as a list of them.
  void give_back_the_rest() {
    for (const auto& folded : folded_ | std::views::reverse) {
      Node* const node = folded.original->node();
      if (!folded.constant->uses().empty() && folded.holds_tensor) {
        if (folded.is_new) {
          derived_.push_back(folded.constant);
        } else {
          folded.constant->replaceAllUsesWith(folded.original);
        }
      }
      // Its inputs, which come next, are used no more if it is not.
      if (folded.original == node->output(0) && !node->hasUses()) node->destroy();
    }
    std::reverse(derived_.begin(), derived_.end());
  }

  const std::shared_ptr<Graph> graph_;
  const torch::jit::AliasDb aliases_;
  std::vector<Folded> folded_;
  std::unordered_set<const Value*> dependent_;  // Constants folded from such inputs,
  std::unordered_set<const Value*> plain_;      // and those folded from others.
  std::vector<Value*> derived_;
};

/// One way through all that can be folded; adds what became a constant.
void fold_until_settled(std::shared_ptr<Graph>& graph, c10::Device home, c10::Device target,
                        std::vector<DerivedConstant>& derived) {
  for (int round = 0; round < kRoundsMax; ++round) {
    set_devices(*graph, home);
    DerivedFolder folder(graph);
    folder.run();
    for (const Value* const value : folder.derived()) {
      derived.push_back({describe_with_source(*value),
                         tensor_bytes(torch::jit::toIValue(value).value_or(c10::IValue()))});
    }
    set_devices(*graph, target);
    fold_plain_values(graph);
    if (folder.derived().empty()) return;
  }
}

bool inline_calls(Block& block, const GraphOf& graph_of) {
  bool found = false;
  for (auto it = block.nodes().begin(); it != block.nodes().end();) {
    Node* const node = *it++;
    for (Block* const nested : node->blocks()) found = inline_calls(*nested, graph_of) || found;
    torch::jit::GraphFunction* const callee = callee_of(*node);
    if (callee == nullptr) continue;
    if (node->kind() == c10::prim::CallFunction) node->removeInput(0);  // The function itself.
    torch::jit::inlineCallTo(node, callee, &graph_of(*callee));
    found = true;
  }
  return found;
}

}  // namespace

bool is_same_device(c10::Device named, c10::Device target) noexcept {
  return named.type() == target.type() &&
         (!named.has_index() || named.index() == target.index() || named.is_cpu());
}

void fold_plain_values(std::shared_ptr<Graph>& graph) {
  torch::jit::ConstantPropagationImmutableTypes(graph);
  torch::jit::EliminateDeadCode(graph);
}

std::vector<BakedDevice> baked_devices(Graph& graph, c10::Device target) {
  std::vector<BakedDevice> found;
  for_each_node(*graph.block(), [&](Node& node) {
    const std::optional<c10::Device> named = device_named_by(node);
    if (!named || node.output()->uses().empty()) return;
    const c10::Device device = *named;
    if (is_same_device(device, target)) return;
    found.push_back({describe_with_source(*node.output()), device,
                     static_cast<std::int64_t>(node.output()->uses().size())});
  });
  return found;
}

bool set_devices(Graph& graph, c10::Device device) {
  bool changed = false;
  for_each_node(*graph.block(), [&](Node& node) {
    const std::optional<c10::Device> named = device_named_by(node);
    if (!named) return;
    changed = changed || !is_same_device(*named, device);
    if (is_device_constant(node)) {
      node.s_(c10::attr::value, device.str());
    } else if (!is_same_device(*named, device)) {
      node.output()->replaceAllUsesWith(node.input(0));
    }
  });
  return changed;
}

std::vector<DerivedConstant> fold_derived(std::shared_ptr<Graph>& graph, c10::Device home,
                                          c10::Device target) {
  const at::NoGradGuard no_grad;  // What requires grad is no constant; the results would not be.
  std::vector<DerivedConstant> derived;
  fold_until_settled(graph, home, target, derived);
  // The executor also writes out loops of a known length: that can make an index a constant.
  std::shared_ptr<Graph> unrolled = graph->copy();
  if (torch::jit::UnrollConstantLoops(unrolled)) {
    fold_plain_values(unrolled);
    const std::size_t before = derived.size();
    fold_until_settled(unrolled, home, target, derived);
    if (derived.size() > before) graph = std::move(unrolled);
  }
  return derived;
}

bool inline_calls(Graph& graph, const GraphOf& graph_of) {
  bool found = false;
  while (inline_calls(*graph.block(), graph_of)) found = true;
  return found;
}

void assign(Graph& graph, Graph& source) {
  graph.block()->clear();
  graph.block()->cloneFrom(source.block(), [](Value* value) { return value; });
}

bool has_executor(const torch::jit::GraphFunction& function) {
  const Executors& executors = function.*member_of(ExecutorsOfFunction());
  return std::any_of(executors.begin(), executors.end(),
                     [](const auto& executor) { return executor.has_value(); });
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
