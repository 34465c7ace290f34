// SPDX-License-Identifier: Apache-2.0
#include "script_inventory.hpp"

#include <ATen/core/class_type.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

using torch::jit::AttributeKind;
using torch::jit::Block;
using torch::jit::GraphFunction;
using torch::jit::Node;
using torch::jit::Value;

std::string key_text(const c10::IValue& key) {
  if (key.isString()) return "[\"" + key.toStringRef() + "\"]";
  if (key.isInt()) return "[" + std::to_string(key.toInt()) + "]";
  return "[...]";
}

/// Operations that take a tensor without dimensions from the host whatever device the others are
/// on, and those that read it on the host.
bool takes_host_number(const torch::jit::Use& use) {
  const std::string_view name = use.user->kind().toQualString();
  if (name == "aten::where") return use.offset > 0;
  if (name == "aten::masked_fill" || name == "aten::masked_fill_") return use.offset == 2;
  static constexpr std::array kNames = {"aten::add",
                                        "aten::sub",
                                        "aten::rsub",
                                        "aten::mul",
                                        "aten::div",
                                        "aten::true_divide",
                                        "aten::floor_divide",
                                        "aten::remainder",
                                        "aten::fmod",
                                        "aten::pow",
                                        "aten::eq",
                                        "aten::ne",
                                        "aten::lt",
                                        "aten::le",
                                        "aten::gt",
                                        "aten::ge",
                                        "aten::add_",
                                        "aten::sub_",
                                        "aten::mul_",
                                        "aten::div_",
                                        "aten::Int",
                                        "aten::Float",
                                        "aten::Bool",
                                        "aten::item",
                                        "aten::IntImplicit",
                                        "aten::FloatImplicit",
                                        "aten::ScalarImplicit"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// Walks a module's objects and graphs.
class Inventory {
 public:
  ScriptInventory take(const torch::jit::Module& module) {
    visit_object(*module._ivalue(), "");
    for (const auto& [path, function] : methods_) visit_function(*function, path);
    for (std::vector<ScriptTensor>& list : tensors_) {
      std::move(list.begin(), list.end(), std::back_inserter(result_.tensors));
    }
    return std::move(result_);
  }

 private:
  void add(const at::Tensor& tensor, std::string path, ScriptTensorKind kind,
           bool is_host_number = false) {
    if (!tensor.defined()) return;
    if (tensor.is_mkldnn() || tensor.is_quantized()) {
      result_.packed.push_back(
          {path, tensor.is_mkldnn() ? "a tensor in MKL-DNN's own layout" : "a quantized tensor",
           tensor.numel() * static_cast<std::int64_t>(tensor.itemsize())});
      return;
    }
    tensors_[static_cast<std::size_t>(kind)].push_back(
        {std::move(path), tensor, kind, is_host_number});
  }

  // --- attributes ---

  void visit_object(c10::ivalue::Object& object, const std::string& path) {
    if (!open_.insert(&object).second) return;  // An object that holds itself.
    const auto& type = *object.type();
    const std::string prefix = path.empty() ? "" : path + ".";
    for (std::size_t slot = 0; slot < type.numAttributes(); ++slot) {
      const std::string name = prefix + type.getAttributeName(slot);
      const c10::IValue& value = object.getSlot(slot);
      if (value.isDevice()) {
        result_.devices.push_back({name, value.toDevice(),
                                   c10::intrusive_ptr<c10::ivalue::Object>::reclaim_copy(&object),
                                   slot});
        continue;
      }
      visit_value(value, name,
                  type.is_parameter(slot) ? ScriptTensorKind::kParameter
                  : type.is_buffer(slot)  ? ScriptTensorKind::kBuffer
                                          : ScriptTensorKind::kAttribute);
    }
    for (const auto* list :
         {&type.methods(), &type.getForwardHooks(), &type.getForwardPreHooks()}) {
      for (torch::jit::Function* const method : *list) {
        GraphFunction* const function = torch::jit::tryToGraphFunction(*method);
        if (function != nullptr && known_.insert(function).second) {
          methods_.emplace_back(prefix + method->name(), function);
        }
      }
    }
    open_.erase(&object);
  }

  void visit_value(const c10::IValue& value, const std::string& path, ScriptTensorKind kind) {
    if (value.isTensor()) {
      add(value.toTensor(), path, kind);
    } else if (value.isList()) {
      const c10::ArrayRef<c10::IValue> items = value.toListRef();
      for (std::size_t i = 0; i < items.size(); ++i) {
        visit_value(items[i], path + "[" + std::to_string(i) + "]", kind);
      }
    } else if (value.isTuple()) {
      const auto& items = value.toTupleRef().elements();
      for (std::size_t i = 0; i < items.size(); ++i) {
        visit_value(items[i], path + "[" + std::to_string(i) + "]", kind);
      }
    } else if (value.isGenericDict()) {
      for (const auto& entry : value.toGenericDict()) {
        visit_value(entry.key(), path + " (a key)", kind);
        visit_value(entry.value(), path + key_text(entry.key()), kind);
      }
    } else if (value.isDevice()) {
      result_.devices.push_back({path, value.toDevice(), nullptr, 0});
    } else if (value.isObject()) {
      if (value.isCustomClass()) {
        result_.packed.push_back({path, "an object of " + value.type()->repr_str(), 0});
      } else {
        visit_object(value.toObjectRef(), path);
      }
    }
  }

  // --- graphs ---

  void visit_function(GraphFunction& function, const std::string& path) {
    if (!visited_.insert(&function).second) return;
    function.ensure_defined();
    ScriptFunction entry{path, &function, {}};
    for_each_node(*function.graph()->block(), [&](Node& node) {
      if (GraphFunction* const callee = callee_of(node)) {
        entry.callees.push_back(callee);
        const auto named = std::find_if(methods_.begin(), methods_.end(), [&](const auto& method) {
          return method.second == callee;
        });
        visit_function(*callee, named == methods_.end() ? callee->qualname().name()
                                                        : std::string(named->first));
      }
      visit_node(node, path);
    });
    result_.functions.push_back(std::move(entry));
  }

  void visit_node(Node& node, const std::string& path) {
    const std::string packed = packed_operation(node);
    if (!packed.empty()) result_.packed.push_back({path, packed, 0});
    for_each_constant(node, [&](const c10::IValue& value) {
      if (value.isDevice()) return;  // Those are looked for in a folded copy.
      const bool has_output = !node.outputs().empty();
      const std::string name =
          path + ": constant " + (has_output ? describe(*node.outputs()[0]) : "");
      if (value.isTensor()) {
        add(value.toTensor(), name, ScriptTensorKind::kConstant,
            has_output && is_host_number(*node.outputs()[0], value.toTensor()));
      } else {
        visit_value(value, name, ScriptTensorKind::kConstant);
      }
    });
  }

  ScriptInventory result_;
  std::array<std::vector<ScriptTensor>, 4> tensors_;  // By kind.
  std::vector<std::pair<std::string, GraphFunction*>> methods_;
  std::unordered_set<const GraphFunction*> known_;
  std::unordered_set<const GraphFunction*> visited_;
  std::unordered_set<const c10::ivalue::Object*> open_;
};

}  // namespace

std::string_view to_string(ScriptTensorKind kind) noexcept {
  switch (kind) {
    case ScriptTensorKind::kParameter:
      return "parameter";
    case ScriptTensorKind::kBuffer:
      return "buffer";
    case ScriptTensorKind::kAttribute:
      return "attribute";
    case ScriptTensorKind::kConstant:
      return "constant";
  }
  return "unknown";
}

ScriptInventory take_inventory(const torch::jit::Module& module) {
  return Inventory().take(module);
}

void for_each_node(Block& block, const std::function<void(Node&)>& visit) {
  for (Node* const node : block.nodes()) {
    visit(*node);
    for (Block* const nested : node->blocks()) for_each_node(*nested, visit);
    for (const torch::jit::Symbol name : node->attributeNames()) {
      if (node->kindOf(name) == AttributeKind::g) for_each_node(*node->g(name)->block(), visit);
      if (node->kindOf(name) == AttributeKind::gs) {
        for (const auto& graph : node->gs(name)) for_each_node(*graph->block(), visit);
      }
    }
  }
}

void for_each_constant(Node& node, const std::function<void(const c10::IValue&)>& visit) {
  for (const torch::jit::Symbol name : node.attributeNames()) {
    switch (node.kindOf(name)) {
      case AttributeKind::t:
        visit(node.t(name));
        break;
      case AttributeKind::ts:
        for (const at::Tensor& tensor : node.ts(name)) visit(tensor);
        break;
      case AttributeKind::ival:
        visit(node.ival(name));
        break;
      default:
        break;
    }
  }
}

GraphFunction* callee_of(Node& node) {
  if (node.kind() == c10::prim::CallFunction) return torch::jit::tryToGraphFunction(&node);
  if (node.kind() != c10::prim::CallMethod) return nullptr;
  const auto type = node.inputs()[0]->type()->cast<c10::ClassType>();
  if (type == nullptr) return nullptr;  // An interface: its implementations are in the attributes.
  torch::jit::Function* const method = type->findMethod(node.s(c10::attr::name));
  return method == nullptr ? nullptr : torch::jit::tryToGraphFunction(*method);
}

std::string describe(const Value& value) {
  std::string text = "%" + value.debugName();
  if (value.uses().empty()) return text;
  const torch::jit::Use& use = value.uses().front();
  if (use.user->kind() == c10::prim::Return) return text + " (returned)";
  return text + " (" + use.user->kind().toQualString() + " input " + std::to_string(use.offset) +
         ")";
}

std::string describe_with_source(const Value& value) {
  std::string text = describe(value);
  const Node* const node = value.uses().empty() ? value.node() : value.uses().front().user;
  if (const auto place = node->sourceRange().file_line_col()) {
    text += " at " + std::get<0>(*place) + ":" + std::to_string(std::get<1>(*place));
  }
  return text;
}

bool is_host_number(const Value& value, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.dim() != 0 || !tensor.is_cpu() || value.uses().empty()) {
    return false;
  }
  // A view of something larger would keep that alive.
  if (!tensor.has_storage() || tensor.storage().nbytes() > 2 * sizeof(double)) return false;
  return std::all_of(value.uses().begin(), value.uses().end(), &takes_host_number);
}

std::string packed_operation(const Node& node) {
  const std::string name = node.kind().toQualString();
  const std::string space = name.substr(0, name.find("::"));
  static constexpr std::array kSpaces = {"prepacked",      "mkldnn_prepacked", "mkldnn",
                                         "onednn",         "quantized",        "xnnpack",
                                         "vulkan_prepack", "metal_prepack"};
  const bool is_packed = std::find(kSpaces.begin(), kSpaces.end(), space) != kSpaces.end() ||
                         name.find("mkldnn") != std::string::npos ||
                         name.find("MKLDNN") != std::string::npos ||
                         name.find("oneDNN") != std::string::npos;
  return is_packed ? "the operation " + name : "";
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
