// SPDX-License-Identifier: Apache-2.0
//
// Each kind of finding, one module each.
#include "script_fixture.hpp"

namespace offstage {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using torch::jit::Module;

class ScriptModuleAuditTest : public ScriptTest {
 protected:
  AuditReport audit(const Module& module) const { return audit_script(module, device()); }

  /// The only finding, which must be of this kind.
  AuditFinding only(const Module& module, AuditKind kind) const {
    const AuditReport report = audit(module);
    EXPECT_EQ(report.findings().size(), 1) << report.to_text();
    if (report.findings().size() != 1) return {};
    EXPECT_EQ(report.findings()[0].kind, kind) << report.to_text();
    return report.findings()[0];
  }
};

TEST_F(ScriptModuleAuditTest, FindsNothingInAPlainModule) {
  Module module = make("");
  module.register_parameter("weight", numbers({4, 4}), false);
  module.define("def forward(self, x):\n  return x @ self.weight\n");
  EXPECT_EQ(audit(module).to_text(), "");
}

TEST_F(ScriptModuleAuditTest, FindsAHiddenConstant) {
  Module module = make("def forward(self, x):\n  return x @ x\n");
  plant(module, "aten::matmul", 1, numbers({4, 4}));
  const AuditFinding finding = only(module, AuditKind::kHiddenConstant);
  EXPECT_THAT(finding.path, HasSubstr("(aten::matmul input 1)"));
  EXPECT_EQ(finding.bytes, 64);
}

TEST_F(ScriptModuleAuditTest, FindsATiedTensor) {
  Module module = make("");
  module.register_parameter("a", numbers({4}), false);
  module.register_parameter("b", module.attr("a").toTensor(), false);
  module.define("def forward(self, x):\n  return x + self.a + self.b\n");
  EXPECT_EQ(only(module, AuditKind::kTiedTensor),
            (AuditFinding{AuditKind::kTiedTensor, "b",
                          "is the same tensor as 'a'; it is moved once", 16}));
}

TEST_F(ScriptModuleAuditTest, FindsSharedMemory) {
  Module module = make("");
  const at::Tensor both = numbers({8});
  module.register_parameter("a", both.narrow(0, 0, 4), false);
  module.register_parameter("b", both.narrow(0, 4, 4), false);
  module.define("def forward(self, x):\n  return x + self.a + self.b\n");
  const AuditReport report = audit(module);
  ASSERT_EQ(report.count(AuditKind::kTiedTensor), 1);
  EXPECT_THAT(report.to_text(), HasSubstr("'b': shares its memory with 'a'"));
}

TEST_F(ScriptModuleAuditTest, FindsAnAliasOutsideTheModule) {
  Module module = make("");
  module.register_parameter("a", numbers({4}), false);
  module.define("def forward(self, x):\n  return x + self.a\n");
  const at::Tensor outside = module.attr("a").toTensor().detach();
  const AuditFinding finding = only(module, AuditKind::kUnmanagedAlias);
  EXPECT_EQ(finding.path, "a");
  EXPECT_THAT(finding.message, StartsWith("1 tensors outside the module share its memory"));
}

TEST_F(ScriptModuleAuditTest, FindsADerivedConstant) {
  Module module = make("def forward(self, x):\n  return x @ x.t()\n");
  plant(module, "aten::t", 0, numbers({3, 4}));
  const std::string before = text_of(module);
  const AuditReport report = audit(module);
  EXPECT_EQ(report.count(AuditKind::kDerivedConstant), 1) << report.to_text();
  EXPECT_EQ(report.findings().back().bytes, 48);
  EXPECT_EQ(text_of(module), before);
}

TEST_F(ScriptModuleAuditTest, FindsABakedDevice) {
  const Module module = make("def forward(self, x):\n  return x.to(torch.device(\"cpu\"))\n");
  const AuditFinding finding = only(module, AuditKind::kBakedDevice);
  EXPECT_THAT(finding.path, HasSubstr("forward: %"));
  EXPECT_THAT(finding.message, HasSubstr("names the device cpu, not sim:0"));
}

TEST_F(ScriptModuleAuditTest, FindsADeviceInTheNameOfAnOperation) {
  const Module module = make("def forward(self, x):\n  return x.cpu() + x.cuda().cpu()\n");
  EXPECT_EQ(audit(module).count(AuditKind::kBakedDevice), 3);
}

TEST_F(ScriptModuleAuditTest, FindsPackedWeights) {
  Module module = make("");
  module.register_parameter("weight", numbers({8, 3, 3, 3}), false);
  module.define("def forward(self, x):\n  return torch.conv2d(x, self.weight)\n");
  Module frozen = torch::jit::freeze_module(module);
  const AuditReport report = audit(torch::jit::optimize_for_inference(frozen));
  EXPECT_EQ(report.count(AuditKind::kPackedWeights), 4) << report.to_text();
}

TEST_F(ScriptModuleAuditTest, FindsATensorThatCannotBeStaged) {
  Module module = make("def forward(self, x):\n  return x\n");
  module.register_attribute("mask", c10::TensorType::get(), numbers({4, 4}).to_sparse());
  const AuditFinding finding = only(module, AuditKind::kUnmanagedTensor);
  EXPECT_EQ(finding.path, "mask");
  EXPECT_THAT(finding.message, HasSubstr("not strided"));
}

// The executor fixes a graph when it is made: an audit must not make one.
TEST_F(ScriptModuleAuditTest, LeavesTheModuleReadyToBeRewritten) {
  Module module = make("def forward(self, x):\n  return x.to(torch.device(\"cpu\"))\n");
  static_cast<void>(audit(module));
  static_cast<void>(script_tensors(module, device(), {.rewrite_devices = true}));
  EXPECT_EQ(module.forward({at::ones({4}).to(device())}).toTensor().device(), device());
}

}  // namespace
}  // namespace offstage
