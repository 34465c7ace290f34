// SPDX-License-Identifier: Apache-2.0
#include "script_model.hpp"

#include <offstage/staging/script_module.hpp>

#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <utility>

namespace offstage::models {
namespace {

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

at::Tensor call(ScriptModel& model, const std::vector<at::Tensor>& inputs) {
  return model.module.forward({inputs.begin(), inputs.end()}).toTensor();
}

std::vector<NamedTensor> tensors_of(ScriptModel& model, c10::Device device) {
  return script_tensors(model.module, device, {.rewrite_devices = true});
}

}  // namespace offstage::models
