// SPDX-License-Identifier: Apache-2.0
//
// What is listed, under which paths, and what is refused.
#include "script_fixture.hpp"

#include <offstage/staging/named_tensor.hpp>

#include <ATen/ops/cat.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/scalar_tensor.h>

namespace offstage {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using torch::jit::Module;

// `named_tensors` would lose attributes and constants. What the compiler says is in
// named_tensor_refused.cpp.
static_assert(!ModuleLike<Module>);
static_assert(!ModuleLike<std::shared_ptr<Module>>);

using ScriptModuleTest = ScriptTest;

TEST_F(ScriptModuleTest, ListsParametersThenBuffersThenAttributes) {
  Module module = make("");
  module.register_attribute("extra", c10::TensorType::get(), numbers({4}));
  module.register_buffer("bias", numbers({4}));
  module.register_parameter("weight", numbers({4, 4}), false);
  module.define("def forward(self, x):\n  return x @ self.weight + self.bias + self.extra\n");
  const std::vector<NamedTensor> tensors = script_tensors(module, device());
  EXPECT_THAT(paths(tensors), ElementsAre("weight", "bias", "extra"));
  EXPECT_TRUE(tensors[2].tensor.is_same(module.attr("extra").toTensor()));
}

TEST_F(ScriptModuleTest, NamesTensorsInContainersAsAPersonWould) {
  Module module = make("def forward(self, x):\n  return x\n");
  c10::Dict<std::string, at::Tensor> table;
  table.insert("a", numbers({2}));
  module.register_attribute(
      "table", c10::DictType::create(c10::StringType::get(), c10::TensorType::get()), table);
  module.register_attribute("scales", c10::ListType::ofTensors(),
                            c10::List<at::Tensor>({numbers({2}), numbers({3})}));
  module.register_attribute(
      "pair", c10::TupleType::create({c10::TensorType::get(), c10::ListType::ofTensors()}),
      c10::ivalue::Tuple::create(numbers({2}), c10::List<at::Tensor>({numbers({3})})));
  module.register_attribute("none", c10::OptionalType::ofTensor(), c10::IValue());
  module.register_attribute("maybe", c10::OptionalType::ofTensor(), numbers({2}));
  EXPECT_THAT(
      paths(script_tensors(module, device())),
      ElementsAre("table[\"a\"]", "scales[0]", "scales[1]", "pair[0]", "pair[1][0]", "maybe"));
}

TEST_F(ScriptModuleTest, NamesTensorsOfChildrenByTheirPlace) {
  Module layer = make("");
  layer.register_parameter("weight", numbers({4, 4}), false);
  layer.define("def forward(self, x):\n  return x @ self.weight\n");
  Module encoder = make("");
  encoder.register_module("0", layer);
  Module module = make("");
  module.register_module("encoder", encoder);
  EXPECT_THAT(paths(script_tensors(module, device())), ElementsAre("encoder.0.weight"));
}

TEST_F(ScriptModuleTest, ListsATensorUnderEachOfItsNames) {
  const at::Tensor shared = numbers({4});
  Module module = make("");
  module.register_parameter("a", shared, false);
  module.register_parameter("b", shared, false);
  module.define("def forward(self, x):\n  return x + self.a + self.b\n");
  const std::vector<NamedTensor> tensors = script_tensors(module, device());
  EXPECT_THAT(paths(tensors), ElementsAre("a", "b"));
  EXPECT_EQ(stage(tensors)->tensor_count(), 1);
}

TEST_F(ScriptModuleTest, ListsTheConstantsOfEachMethodWithTheirUse) {
  Module child = make("def forward(self, x):\n  return x * x\n");
  const at::Tensor inner = numbers({4});
  plant(child, "aten::mul", 1, inner);
  Module module = make("");
  module.register_module("child", child);
  module.define("def forward(self, x):\n  return self.child.forward(x) @ x\n");
  const at::Tensor outer = numbers({4, 4});
  plant(module, "aten::matmul", 1, outer);
  const std::vector<NamedTensor> tensors = script_tensors(module, device());
  ASSERT_EQ(tensors.size(), 2);
  EXPECT_THAT(tensors[0].path, StartsWith("child.forward: constant %"));
  EXPECT_THAT(tensors[0].path, HasSubstr("(aten::mul input 1)"));
  EXPECT_TRUE(tensors[0].tensor.is_same(inner));
  EXPECT_THAT(tensors[1].path, StartsWith("forward: constant %"));
  EXPECT_TRUE(tensors[1].tensor.is_same(outer));
}

TEST_F(ScriptModuleTest, ListsTensorsInConstantLists) {
  Module module = make("def forward(self, x):\n  return torch.cat([x, x])\n");
  plant(module, "aten::cat", 0, c10::List<at::Tensor>({numbers({2}), numbers({3})}));
  const std::vector<NamedTensor> tensors = script_tensors(module, device());
  // The concatenation itself depends on constants alone, so that is what is kept.
  ASSERT_EQ(tensors.size(), 1);
  EXPECT_TRUE(at::equal(tensors[0].tensor, at::cat({numbers({2}), numbers({3})})));
}

TEST_F(ScriptModuleTest, ListsConstantsInBlocksOfIfsAndLoops) {
  Module module = make(
      "def forward(self, x, n: int):\n"
      "  if bool(x.sum() > 0):\n"
      "    for i in range(n):\n"
      "      x = x @ x\n"
      "  return x\n");
  const at::Tensor weight = numbers({4, 4});
  plant(module, "aten::matmul", 1, weight);
  const std::vector<NamedTensor> tensors = script_tensors(module, device());
  ASSERT_EQ(tensors.size(), 1);
  EXPECT_TRUE(tensors[0].tensor.is_same(weight));
}

TEST_F(ScriptModuleTest, ListsTheWeightsOfAFrozenModule) {
  Module module = make("");
  module.register_parameter("weight", numbers({4, 4}), false);
  module.define("def forward(self, x):\n  return x @ self.weight\n");
  Module frozen = torch::jit::freeze_module(module);
  EXPECT_THAT(frozen.parameters().size() + frozen.buffers().size(), 0);
  const std::vector<NamedTensor> tensors = script_tensors(frozen, device());
  ASSERT_EQ(tensors.size(), 1);
  EXPECT_TRUE(at::equal(tensors[0].tensor, numbers({4, 4})));
}

TEST_F(ScriptModuleTest, LeavesANumberThatIsOnlyCalculatedWithOnTheHost) {
  Module module = make("def forward(self, x):\n  return x * x\n");
  plant(module, "aten::mul", 1, at::scalar_tensor(2.0));
  EXPECT_THAT(script_tensors(module, device()), IsEmpty());
}

// An index on the host beside a table on the device is an error.
TEST_F(ScriptModuleTest, ListsANumberThatIsAnIndex) {
  Module module = make("def forward(self, x):\n  return torch.embedding(x, x)\n");
  plant(module, "aten::embedding", 1, at::scalar_tensor(1, at::kLong));
  EXPECT_EQ(script_tensors(module, device()).size(), 1);
}

TEST_F(ScriptModuleTest, RefusesAPackedModuleByItsOperations) {
  Module module = make("");
  module.register_parameter("weight", numbers({8, 3, 3, 3}), false);
  module.define("def forward(self, x):\n  return torch.relu(torch.conv2d(x, self.weight))\n");
  Module frozen = torch::jit::freeze_module(module);
  Module packed = torch::jit::optimize_for_inference(frozen);
  const std::string before = text_of(packed);
  const std::string why = refusal(packed);
  EXPECT_THAT(why, HasSubstr("optimize_for_inference"));
  EXPECT_THAT(why, HasSubstr("'forward' holds the operation prim::mkldnn_convolution"));
  EXPECT_EQ(text_of(packed), before);
}

TEST_F(ScriptModuleTest, RefusesAQuantizedTensorByItsPath) {
  Module module = make("def forward(self, x):\n  return x\n");
  module.register_attribute("weight", c10::TensorType::get(),
                            at::quantize_per_tensor(numbers({4}), 0.1, 0, at::kQInt8));
  EXPECT_THAT(refusal(module), HasSubstr("'weight' holds a quantized tensor"));
}

TEST_F(ScriptModuleTest, RefusesADeviceWithoutAnIndex) {
  Module module = make("def forward(self, x):\n  return x\n");
  EXPECT_THROW(static_cast<void>(script_tensors(module, c10::Device(device().type()))),
               InvalidArgument);
  EXPECT_THROW(static_cast<void>(audit_script(module, c10::Device(device().type()))),
               InvalidArgument);
}

TEST_F(ScriptModuleTest, LeavesAGraphWithoutFindingsAsItIs) {
  Module module = make("");
  module.register_parameter("weight", numbers({4, 4}), false);
  module.define(
      "def forward(self, x):\n  y = torch.zeros([4])\n  return x @ self.weight + 2 * 3 + "
      "y.to(x)\n");
  const std::string before = text_of(module);
  static_cast<void>(script_tensors(module, device(), {.rewrite_devices = true}));
  EXPECT_EQ(text_of(module), before);
}

}  // namespace
}  // namespace offstage
