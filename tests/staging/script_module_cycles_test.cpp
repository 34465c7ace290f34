// SPDX-License-Identifier: Apache-2.0
//
// Modules of every kind through 100 cycles of load and offload; see ScriptTest::expect_cycles.
#include "script_fixture.hpp"

#include <ATen/ops/scalar_tensor.h>

namespace offstage {
namespace {

using torch::jit::Module;

using ScriptModuleCyclesTest = ScriptTest;

const at::Tensor kInput = at::ones({2, 4});

TEST_F(ScriptModuleCyclesTest, ScriptedModuleWithAChild) {
  expect_cycles(
      [] {
        Module child = make("");
        child.register_parameter("weight", numbers({4, 4}), false);
        child.define("def forward(self, x):\n  return torch.relu(x @ self.weight)\n");
        Module module = make("");
        module.register_module("child", child);
        module.register_buffer("bias", numbers({4}));
        module.define("def forward(self, x):\n  return self.child.forward(x) + self.bias\n");
        return module;
      },
      {kInput});
}

TEST_F(ScriptModuleCyclesTest, FrozenModule) {
  expect_cycles(
      [] {
        Module module = make("");
        module.register_parameter("weight", numbers({4, 4}), false);
        module.register_parameter("bias", numbers({4}), false);
        module.define("def forward(self, x):\n  return x @ self.weight.t() + self.bias\n");
        return torch::jit::freeze_module(module);
      },
      {kInput});
}

TEST_F(ScriptModuleCyclesTest, TensorsInListDictAndTuple) {
  expect_cycles(
      [] {
        Module module = make("");
        c10::Dict<std::string, at::Tensor> table;
        table.insert("a", numbers({4}));
        module.register_attribute(
            "table", c10::DictType::create(c10::StringType::get(), c10::TensorType::get()), table);
        module.register_attribute("scales", c10::ListType::ofTensors(),
                                  c10::List<at::Tensor>({numbers({4}), numbers({4}).add(1)}));
        module.register_attribute(
            "pair", c10::TupleType::create({c10::TensorType::get(), c10::TensorType::get()}),
            c10::ivalue::Tuple::create(numbers({4, 4}), numbers({4})));
        module.define(
            "def forward(self, x):\n"
            "  w, b = self.pair\n"
            "  return x @ w * self.scales[0] + self.scales[1] * self.table[\"a\"] + b\n");
        return module;
      },
      {kInput});
}

TEST_F(ScriptModuleCyclesTest, ConstantsInBlocksAndChildren) {
  expect_cycles(
      [] {
        Module child = make("def forward(self, x):\n  return x * x\n");
        plant(child, "aten::mul", 1, numbers({4}));
        Module module = make("");
        module.register_module("child", child);
        module.define(
            "def forward(self, x):\n"
            "  if bool(x.sum() > 0):\n"
            "    x = x @ x\n"
            "  return self.child.forward(x)\n");
        plant(module, "aten::matmul", 1, numbers({4, 4}));
        return module;
      },
      {kInput});
}

TEST_F(ScriptModuleCyclesTest, DerivedConstantsOfTheMethodItself) {
  expect_cycles(
      [] {
        Module module = make("def forward(self, x):\n  return x @ (x.t() * 2)\n");
        plant(module, "aten::t", 0, numbers({3, 4}));
        return module;
      },
      {kInput});
}

TEST_F(ScriptModuleCyclesTest, DerivedConstantsAcrossCalls) {
  expect_cycles(
      [] {
        Module child = make("def forward(self, x, w):\n  return x @ w.t()\n");
        Module module = make("");
        module.register_module("child", child);
        module.define("def forward(self, x):\n  return self.child.forward(x, x)\n");
        plant(module, "prim::CallMethod", 2, numbers({3, 4}));
        return module;
      },
      {kInput});
}

TEST_F(ScriptModuleCyclesTest, DerivedConstantsOfAnUnrolledLoop) {
  expect_cycles(
      [] {
        Module module = make(
            "def forward(self, x):\n"
            "  for i in range(3):\n"
            "    x = x @ x[i]\n"
            "  return x\n");
        plant(module, "aten::select", 0, numbers({3, 4, 4}));
        return module;
      },
      {kInput});
}

TEST_F(ScriptModuleCyclesTest, RewrittenDevices) {
  expect_cycles(
      [] {
        return make(
            "def forward(self, x):\n"
            "  rows = torch.zeros([x.size(0), 4], device=torch.device(\"cpu\"))\n"
            "  return x + rows + torch.arange(4, device=torch.device(\"cpu\"), "
            "dtype=6)\n");
      },
      {kInput}, {.rewrite_devices = true});
}

TEST_F(ScriptModuleCyclesTest, OperationsThatNameTheHostAndAreRewritten) {
  const auto make_one = [] {
    Module module = make("");
    module.register_parameter("w", numbers({2, 4}), false);
    module.define("def forward(self, x):\n  return x + self.w.cpu()\n");
    return module;
  };
  Module refused = make_one();
  EXPECT_THROW(static_cast<void>(script_tensors(refused, device())), StagingError);
  expect_cycles(make_one, {kInput}, {.rewrite_devices = true});
}

TEST_F(ScriptModuleCyclesTest, NumbersInTheGraph) {
  expect_cycles(
      [] {
        Module module =
            make("def forward(self, x):\n  return torch.stack([x[0, 0] * x, x.sum()])\n");
        plant(module, "aten::mul", 1, at::scalar_tensor(3.0));
        return module;
      },
      {kInput});
}

}  // namespace
}  // namespace offstage
