// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What tests of TorchScript modules share: the simulated accelerator, and modules made from source
/// text.

#include <offstage/base/error.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/device/generic_telemetry.hpp>
#include <offstage/staging/pinned_module_stager.hpp>
#include <offstage/staging/script_module.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/freeze_module.h>

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace offstage {

/// Starts from an idle simulator and leaves it without live device memory.
class ScriptTest : public ::testing::Test {
 protected:
  ScriptTest() { simulator.reset(); }
  void TearDown() override {
    EXPECT_NO_THROW(simulator.reset()) << "device memory was left behind";
  }

  [[nodiscard]] c10::Device device() const { return simulator.device(); }

  /// The values are 0.01, 0.02, ...: no two elements are the same, and products stay small.
  static at::Tensor numbers(std::vector<std::int64_t> sizes) {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    return at::arange(1, count + 1, at::kFloat).mul_(0.01).reshape(sizes).clone();
  }

  static torch::jit::Module make(const std::string& source) {
    torch::jit::Module module("m");
    module.register_attribute("training", c10::BoolType::get(), false);
    if (!source.empty()) module.define(source);
    return module;
  }

  static torch::jit::Node* find_node(torch::jit::Block& block, const std::string& kind) {
    for (torch::jit::Node* const node : block.nodes()) {
      if (node->kind().toQualString() == kind) return node;
      for (torch::jit::Block* const nested : node->blocks()) {
        if (torch::jit::Node* const found = find_node(*nested, kind)) return found;
      }
    }
    return nullptr;
  }

  /// Makes `value` a constant of the graph and the given input of the first node of that kind: what
  /// a trace does with a plain tensor member.
  static void plant(const torch::jit::Module& module, const std::string& kind, std::size_t input,
                    const c10::IValue& value) {
    const auto graph = module.get_method("forward").graph();
    torch::jit::Node* const node = find_node(*graph->block(), kind);
    ASSERT_NE(node, nullptr) << kind << " is not in\n" << *graph;
    const torch::jit::WithInsertPoint here(node);
    node->replaceInput(input, graph->insertConstant(value));
  }

  static std::string text_of(const torch::jit::Module& module) {
    return module.get_method("forward").graph()->toString(/*print_source_locations=*/false);
  }

  static std::vector<std::string> paths(const std::vector<NamedTensor>& tensors) {
    std::vector<std::string> names;
    for (const NamedTensor& named : tensors) names.push_back(named.path);
    return names;
  }

  /// What `script_tensors` refuses with.
  std::string refusal(torch::jit::Module& module, ScriptOptions options = {}) const {
    try {
      static_cast<void>(script_tensors(module, device(), options));
    } catch (const StagingError& error) {
      return error.what();
    }
    return "";
  }

  [[nodiscard]] std::shared_ptr<PinnedModuleStager> stage(std::vector<NamedTensor> tensors) const {
    return std::make_shared<PinnedModuleStager>(std::move(tensors), context);
  }

  static std::vector<std::size_t> storage_uses(const std::vector<NamedTensor>& tensors) {
    std::vector<std::size_t> uses;
    for (const NamedTensor& named : tensors) {
      uses.push_back(named.tensor.storage().use_count());
    }
    return uses;
  }

  /// Stages the module and runs it in 100 cycles of load and offload. Each result must have the
  /// bytes of a module that nobody stages, and each offload must leave nothing behind: no device
  /// memory, and nobody who keeps the storage of a tensor but those who did before the first run.
  void expect_cycles(const std::function<torch::jit::Module()>& make_module,
                     const std::vector<at::Tensor>& inputs, ScriptOptions options = {}) {
    torch::jit::Module here = make_module();
    torch::jit::Module there = make_module();
    const std::vector<NamedTensor> tensors = script_tensors(there, device(), options);
    const auto stager = stage(tensors);
    const std::vector<std::size_t> uses = storage_uses(tensors);
    std::vector<void*> masters;
    for (const NamedTensor& named : tensors) masters.push_back(named.tensor.data_ptr());

    const c10::InferenceMode inference;
    for (int cycle = 0; cycle < 100; ++cycle) {
      SCOPED_TRACE("cycle " + std::to_string(cycle));
      const at::Tensor expected = here.forward({inputs.begin(), inputs.end()}).toTensor();
      at::Tensor result;
      {
        stager->load();
        std::vector<c10::IValue> moved;
        for (const at::Tensor& input : inputs) moved.emplace_back(input.to(device()));
        const at::Tensor there_result = there.forward(std::move(moved)).toTensor();
        ASSERT_EQ(there_result.device(), device());
        result = there_result.cpu();
      }
      stager->offload();
      ASSERT_TRUE(at::equal(result, expected));
      ASSERT_EQ(simulator.memory().allocated, 0);
      ASSERT_EQ(stager->still_referenced_bytes(), 0);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        ASSERT_TRUE(tensors[i].tensor.is_cpu()) << tensors[i].path;
        ASSERT_EQ(tensors[i].tensor.data_ptr(), masters[i]) << tensors[i].path;
      }
      ASSERT_EQ(storage_uses(tensors), uses);
    }
  }

  testing::Simulator& simulator = testing::Simulator::install();
  std::shared_ptr<DeviceContext> context = DeviceContext::create(
      simulator.device(),
      {.host_memory = simulator.host_memory(), .telemetry = std::make_shared<GenericTelemetry>()});
};

}  // namespace offstage
