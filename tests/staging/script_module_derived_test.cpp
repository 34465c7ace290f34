// SPDX-License-Identifier: Apache-2.0
//
// Constants that the executor would compute at the first run, and devices that graphs name.
#include "script_fixture.hpp"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/schema_matching.h>

namespace offstage {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using torch::jit::Module;

class ScriptModuleDerivedTest : public ScriptTest {
 protected:
  static at::Tensor run(Module& module) { return module.forward({at::ones({2, 4})}).toTensor(); }
};

Module transposing(const at::Tensor& weight) {
  Module module("m");
  module.register_attribute("training", c10::BoolType::get(), false);
  module.define("def forward(self, x):\n  return x @ x.t()\n");
  const auto graph = module.get_method("forward").graph();
  for (torch::jit::Node* const node : graph->nodes()) {
    if (node->kind() != c10::aten::t) continue;
    const torch::jit::WithInsertPoint here(node);
    node->replaceInput(0, graph->insertConstant(weight));
    break;
  }
  return module;
}

TEST_F(ScriptModuleDerivedTest, FoldsWhatTheExecutorWouldFold) {
  const at::Tensor weight = numbers({3, 4});
  Module module = transposing(weight);
  const at::Tensor expected = run(module);
  Module fresh = transposing(weight);
  const std::vector<NamedTensor> tensors = script_tensors(fresh, device());
  ASSERT_EQ(tensors.size(), 1);  // The view; the weight itself is no longer in the graph.
  EXPECT_EQ(tensors[0].tensor.data_ptr(), weight.data_ptr());
  EXPECT_THAT(tensors[0].tensor.sizes(), ElementsAre(4, 3));
  EXPECT_THAT(text_of(fresh), Not(HasSubstr("aten::t(")));
  EXPECT_TRUE(at::equal(run(fresh), expected));
}

// A view keeps the tensor that it was made from, which nobody would move.
TEST_F(ScriptModuleDerivedTest, KeepsNothingButWhatItLists) {
  Module module = transposing(numbers({3, 4}));
  const std::vector<NamedTensor> tensors = script_tensors(module, device());
  ASSERT_EQ(tensors.size(), 1);
  EXPECT_EQ(tensors[0].tensor.storage().use_count(), 1);
}

TEST_F(ScriptModuleDerivedTest, FoldsAcrossCallsAndInlinesOnlyThatMethod) {
  Module child = make("def forward(self, x, w):\n  return x @ w.t()\n");
  Module other = make("");
  other.register_parameter("bias", numbers({3}), false);
  other.define("def forward(self, x):\n  return x + self.bias\n");
  Module module = make("");
  module.register_module("child", child);
  module.register_module("other", other);
  module.define("def helper(self, x):\n  return self.other.forward(x)\n");
  module.define("def forward(self, x):\n  return self.helper(self.child.forward(x, x))\n");
  plant(module, "prim::CallMethod", 2, numbers({3, 4}));
  const std::string helper =
      module.get_method("helper").graph()->toString(/*print_source_locations=*/false);
  const std::vector<NamedTensor> tensors = script_tensors(module, device());
  ASSERT_EQ(tensors.size(), 2);
  EXPECT_THAT(tensors[1].tensor.sizes(), ElementsAre(4, 3));
  EXPECT_THAT(text_of(module), Not(HasSubstr("prim::CallMethod")));
  EXPECT_EQ(module.get_method("helper").graph()->toString(false), helper);
}

TEST_F(ScriptModuleDerivedTest, FoldsInsideFunctionsThatAreCalled) {
  torch::jit::CompilationUnit unit;
  Module module = make("");
  module.define("def forward(self, x):\n  return x\n");
  unit.define(c10::QualifiedName("tools"), "def project(x):\n  return x @ x.t()\n",
              torch::jit::nativeResolver(), nullptr);
  auto& function = torch::jit::toGraphFunction(unit.get_function("tools.project"));
  for (torch::jit::Node* const node : function.graph()->nodes()) {
    if (node->kind() != c10::aten::t) continue;
    const torch::jit::WithInsertPoint here(node);
    node->replaceInput(0, function.graph()->insertConstant(numbers({3, 4})));
    break;
  }
  const auto graph = module.get_method("forward").graph();
  {
    const torch::jit::WithInsertPoint here(graph->return_node());
    graph->block()->replaceOutput(
        0, graph->insertFunctionCall(
               &function, torch::jit::MatchedSchema{
                              {graph->inputs()[1]}, {c10::TensorType::get()}, {}, "project"}));
  }
  const std::vector<NamedTensor> tensors = script_tensors(module, device());
  ASSERT_EQ(tensors.size(), 1);
  EXPECT_THAT(tensors[0].path, HasSubstr("project: constant"));
  EXPECT_THAT(tensors[0].tensor.sizes(), ElementsAre(4, 3));
}

TEST_F(ScriptModuleDerivedTest, FoldsWhatALoopOfKnownLengthPicks) {
  Module module = make(
      "def forward(self, x):\n"
      "  for i in range(3):\n"
      "    x = x @ x[i]\n"
      "  return x\n");
  const at::Tensor weights = numbers({3, 4, 4});
  plant(module, "aten::select", 0, weights);
  const std::vector<NamedTensor> tensors = script_tensors(module, device());
  ASSERT_EQ(tensors.size(), 3);
  EXPECT_EQ(tensors[2].tensor.data_ptr(), weights[2].data_ptr());
}

TEST_F(ScriptModuleDerivedTest, RefusesToFoldAfterTheFirstRun) {
  Module module = transposing(numbers({3, 4}));
  const at::Tensor expected = run(module);  // Once: the executor has not even optimized yet.
  const std::string before = text_of(module);
  EXPECT_THAT(refusal(module),
              AllOf(HasSubstr("has run already: 'forward'"), HasSubstr("aten::matmul input 1")));
  EXPECT_EQ(text_of(module), before);
  EXPECT_TRUE(at::equal(run(module), expected));
}

TEST_F(ScriptModuleDerivedTest, RefusesToFoldWhenOnlyTheCallerHasRun) {
  Module child = transposing(numbers({3, 4}));
  Module module = make("");
  module.register_module("child", child);
  module.define("def forward(self, x):\n  return self.child.forward(x)\n");
  static_cast<void>(run(module));
  EXPECT_THAT(refusal(module), HasSubstr("has run already: 'forward';"));
}

TEST_F(ScriptModuleDerivedTest, TakesAModuleThatRanIfNothingHasToBeChanged) {
  Module module = make("");
  module.register_parameter("weight", numbers({4, 4}), false);
  module.define("def forward(self, x):\n  return x @ self.weight\n");
  for (int i = 0; i < 3; ++i) static_cast<void>(run(module));
  EXPECT_THAT(paths(script_tensors(module, device())), ElementsAre("weight"));
}

// --- devices ---

constexpr const char* kBaked =
    "def forward(self, x):\n"
    "  return x + torch.arange(4, device=torch.device(\"cpu\"), dtype=6) * x\n";

TEST_F(ScriptModuleDerivedTest, RefusesABakedDeviceWithItsNode) {
  Module module = make(kBaked);
  const std::string before = text_of(module);
  const std::string why = refusal(module);
  EXPECT_THAT(why, HasSubstr("is to run on sim:0"));
  EXPECT_THAT(why, HasSubstr("'forward: %"));
  EXPECT_THAT(why, HasSubstr("(aten::arange input 3) at <string>:2' names the device cpu"));
  EXPECT_EQ(text_of(module), before);
  EXPECT_EQ(run(module).sizes(), at::IntArrayRef({2, 4}));  // Still good for the CPU.
}

TEST_F(ScriptModuleDerivedTest, RewritesABakedDeviceOnDemand) {
  Module module = make(
      "def forward(self, x):\n"
      "  return x.to(torch.device(\"cpu\")) + 1\n");
  EXPECT_THAT(script_tensors(module, device(), {.rewrite_devices = true}), IsEmpty());
  EXPECT_THAT(text_of(module), HasSubstr("\"sim:0\""));
  EXPECT_EQ(module.forward({at::ones({4}).to(device())}).toTensor().device(), device());
}

TEST_F(ScriptModuleDerivedTest, ManagesWhatIsMadeOnANamedDevice) {
  Module module = make(kBaked);
  const std::vector<NamedTensor> tensors =
      script_tensors(module, device(), {.rewrite_devices = true});
  ASSERT_EQ(tensors.size(), 1);
  EXPECT_TRUE(tensors[0].tensor.is_cpu());
  EXPECT_TRUE(at::equal(tensors[0].tensor, at::arange(4, at::kFloat)));
}

TEST_F(ScriptModuleDerivedTest, TakesTheDeviceThatTheGraphNamesWithOrWithoutItsIndex) {
  for (const std::string name : {"sim", "sim:0"}) {
    Module module = make("def forward(self, x):\n  return x.to(torch.device(\"" + name + "\"))\n");
    EXPECT_EQ(refusal(module), "") << name;
  }
  Module module = make("def forward(self, x):\n  return x.to(torch.device(\"sim:1\"))\n");
  EXPECT_THAT(refusal(module), HasSubstr("names the device sim:1"));
}

TEST_F(ScriptModuleDerivedTest, FindsADeviceThatTheCallerHandsDown) {
  Module child = make("def forward(self, x, where: str):\n  return x.to(torch.device(where))\n");
  Module module = make("");
  module.register_module("child", child);
  module.define("def forward(self, x):\n  return self.child.forward(x, \"cpu\") + 1\n");
  EXPECT_THAT(refusal(module), HasSubstr("names the device cpu"));
  static_cast<void>(script_tensors(module, device(), {.rewrite_devices = true}));
  EXPECT_EQ(module.forward({at::ones({4}).to(device())}).toTensor().device(), device());
}

TEST_F(ScriptModuleDerivedTest, RewritesADeviceInAnAttribute) {
  Module module = make("");
  module.register_attribute("place", c10::DeviceObjType::get(), c10::Device(c10::kCPU));
  module.define("def forward(self, x):\n  return x + torch.ones([4], device=self.place)\n");
  EXPECT_THAT(refusal(module), HasSubstr("'place' names the device cpu"));
  static_cast<void>(script_tensors(module, device(), {.rewrite_devices = true}));
  EXPECT_EQ(module.attr("place").toDevice(), device());
  EXPECT_EQ(module.forward({at::ones({4}).to(device())}).toTensor().device(), device());
}

TEST_F(ScriptModuleDerivedTest, RefusesADeviceInAListEvenOnDemand) {
  Module module = make("def forward(self, x):\n  return x\n");
  module.register_attribute("places", c10::ListType::create(c10::DeviceObjType::get()),
                            c10::List<c10::Device>({c10::Device(c10::kCPU)}));
  EXPECT_THAT(
      refusal(module, {.rewrite_devices = true}),
      AllOf(HasSubstr("'places[0]' names the device cpu"), HasSubstr("cannot be rewritten")));
}

// The executor fixes the graph with the first run. (`GraphExecutor::isOptimized` turns true with
// the second.)
TEST_F(ScriptModuleDerivedTest, RefusesToRewriteAfterTheFirstRun) {
  for (const int runs : {1, 2, 3}) {
    Module module = make(kBaked);
    for (int i = 0; i < runs; ++i) static_cast<void>(run(module));
    const std::string before = text_of(module);
    EXPECT_THAT(refusal(module, {.rewrite_devices = true}), HasSubstr("has run already: 'forward'"))
        << runs;
    EXPECT_EQ(text_of(module), before);
  }
}

TEST_F(ScriptModuleDerivedTest, RefusesWhenAMethodOfAChildHasRun) {
  Module child = make(kBaked);
  Module module = make("");
  module.register_module("child", child);
  module.define("def forward(self, x):\n  return self.child.forward(x)\n");
  static_cast<void>(run(child));
  EXPECT_THAT(refusal(module, {.rewrite_devices = true}),
              HasSubstr("has run already: 'child.forward'"));
}

// Comparing devices was done with the devices that the program names, not with the CPU, where
// constants are computed.
TEST_F(ScriptModuleDerivedTest, DecidesByTheDevicesThatTheGraphNames) {
  Module module = make(
      "def forward(self, x):\n"
      "  if torch.device(\"sim:0\").type == \"cpu\":\n"
      "    return x + 1\n"
      "  return x + torch.full([4], 2.0, device=torch.device(\"sim:0\"))\n");
  const auto stager = stage(script_tensors(module, device()));
  stager->load();
  const at::Tensor result = module.forward({at::ones({4}).to(device())}).toTensor().cpu();
  stager->offload();
  EXPECT_TRUE(at::equal(result, at::ones({4}).add(2)));
  EXPECT_EQ(simulator.memory().allocated, 0);
}

}  // namespace
}  // namespace offstage
