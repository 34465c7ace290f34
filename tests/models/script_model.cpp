// SPDX-License-Identifier: Apache-2.0
#include "script_model.hpp"

#include <ATen/ops/to.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <unordered_set>
#include <utility>

namespace offstage::models {
namespace {

// Re-binds tensors in place, each once: the same one may be an attribute of several modules.
class Mover {
 public:
  explicit Mover(c10::Device device) : device_(device) {}

  void move(const at::Tensor& tensor) {
    if (!tensor.defined() || !moved_.insert(tensor.unsafeGetTensorImpl()).second) return;
    const at::Tensor copy = tensor.detach().to(device_);
    tensor.unsafeGetTensorImpl()->shallow_copy_from(copy.getIntrusivePtr());
  }

  void move(torch::jit::Block& block) {
    for (torch::jit::Node* const node : block.nodes()) {
      if (node->kind() == c10::prim::Constant && node->hasAttribute(c10::attr::value)) {
        move_constant(*node);
      }
      for (torch::jit::Block* const nested : node->blocks()) move(*nested);
    }
  }

  // Tensors anywhere in the value, modules apart.
  void move(const c10::IValue& value) {
    value.visit([this](const c10::IValue& part) {
      if (part.isTensor()) move(part.toTensor());
      return part.isModule();
    });
  }

 private:
  void move_constant(torch::jit::Node& node) {
    const c10::IValue value = torch::jit::toIValue(node.output()).value();
    if (value.isDevice()) {
      node.s_(c10::attr::value, device_.str());
    } else if (!value.isTensor() || value.toTensor().dim() > 0) {
      move(value);  // Numbers may stay on the host, as on any accelerator.
    }
  }

  c10::Device device_;
  std::unordered_set<c10::TensorImpl*> moved_;
};

c10::IValue unpickle(const std::string& bytes) {
  return torch::jit::pickle_load({bytes.begin(), bytes.end()});
}

}  // namespace

ScriptModel load_model(const std::string& path) {
  torch::jit::ExtraFilesMap files = {{"inputs.pt", ""}, {"expected.pt", ""}};
  torch::jit::Module module = torch::jit::load(path, c10::kCPU, files);
  ScriptModel model{std::move(module), {}, unpickle(files.at("expected.pt")).toTensor()};
  const c10::IValue inputs = unpickle(files.at("inputs.pt"));
  for (const c10::IValue& input : inputs.toTupleRef().elements()) {
    model.inputs.push_back(input.toTensor());
  }
  return model;
}

at::Tensor call(ScriptModel& model) {
  return model.module.forward({model.inputs.begin(), model.inputs.end()}).toTensor();
}

void move_model(ScriptModel& model, c10::Device device) {
  Mover mover(device);
  for (const torch::jit::Module& module : model.module.modules()) {
    for (const auto& [name, value] : module.named_attributes(/*recurse=*/false)) mover.move(value);
    for (const torch::jit::Method& method : module.get_methods()) {
      mover.move(*method.graph()->block());
    }
  }
  for (at::Tensor& input : model.inputs) input = input.to(device);
}

}  // namespace offstage::models
