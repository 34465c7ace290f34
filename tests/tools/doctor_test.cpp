// SPDX-License-Identifier: Apache-2.0
//
// Runs the program on archives that are written here.
#include "../support/program_test.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace offstage::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Result = ProgramResult;
using torch::jit::Module;

class DoctorTest : public ProgramTest {
 protected:
  Result run(const std::string& arguments) const {
    return run_command(OFFSTAGE_DOCTOR " " + arguments);
  }

  /// A run that must fail with status 2, a message on stderr, and nothing on stdout.
  std::string error_of(const std::string& arguments) const {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.error, StartsWith("offstage-doctor: "));
    return result.error;
  }

  json report_of(const std::string& arguments, int code) const {
    const Result result = run("--json --cycles 3 " + arguments);
    EXPECT_EQ(result.code, code) << result.out << result.error;
    return result.out.empty() ? json::object() : json::parse(result.out);
  }

  /// The path of the archive, which holds its inputs: one tensor of 2x4.
  std::string save(const Module& module, const std::string& name = "model.pt") const {
    const std::vector<char> inputs =
        torch::jit::pickle_save(c10::ivalue::Tuple::create(at::ones({2, 4})));
    module.save(file(name).string(), {{"inputs.pt", {inputs.begin(), inputs.end()}}});
    return file(name).string();
  }

  static at::Tensor numbers(std::vector<std::int64_t> sizes) {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    return at::arange(1, count + 1, at::kFloat).mul_(0.01).reshape(sizes).clone();
  }

  /// A module with a parameter `weight` of 4x4.
  static Module make(const std::string& body) {
    Module module("m");
    module.register_attribute("training", c10::BoolType::get(), false);
    module.register_parameter("weight", numbers({4, 4}), false);
    module.define("def forward(self, x):\n" + body);
    return module;
  }

  static std::vector<std::string> kinds(const json& findings) {
    std::vector<std::string> names;
    for (const json& finding : findings) names.push_back(finding.at("kind"));
    return names;
  }
};

TEST_F(DoctorTest, FindsAPlainModuleHealthy) {
  const json report = report_of(save(make("  return x @ self.weight\n")), 0);
  EXPECT_EQ(report.at("healthy"), true);
  EXPECT_THAT(report.at("found"), IsEmpty());
  EXPECT_EQ(report.at("cycles"), 3);
  EXPECT_EQ(report.at("inputs"), json::array({"2x4:float"}));
  EXPECT_EQ(report.at("bytes_by_kind"),
            json::parse(R"({"parameter": {"tensors": 1, "bytes": 64}})"));
  EXPECT_EQ(report.at("bytes_by_dtype"), json::parse(R"({"float": {"tensors": 1, "bytes": 64}})"));
  EXPECT_EQ(report.at("staged_bytes"), 512);
  EXPECT_EQ(report.at("chunks"), 1);
}

TEST_F(DoctorTest, PrintsTheSameForPeople) {
  const Result result = run("--cycles 2 " + save(make("  return x @ self.weight\n")));
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("parameter   1 tensors, 64 bytes\n"),
                    HasSubstr("Found in the archive\n  nothing\n"),
                    HasSubstr("inputs: 2x4:float\n"), HasSubstr("512 bytes in 1 copy\n"),
                    HasSubstr("2 cycles gave the bytes of the CPU\n"), HasSubstr("\nHealthy.\n")));
}

TEST_F(DoctorTest, FindsTiedTensors) {
  Module tied("m");
  tied.register_attribute("training", c10::BoolType::get(), false);
  tied.register_parameter("weight", numbers({4, 4}), false);
  tied.register_parameter("again", tied.attr("weight").toTensor(), false);
  tied.define("def forward(self, x):\n  return x @ self.weight + x @ self.again\n");
  const json report = report_of(save(tied), 0);
  EXPECT_EQ(kinds(report.at("found")), std::vector<std::string>{"tied_tensor"});
}

TEST_F(DoctorTest, FindsHiddenConstants) {
  const json report =
      report_of(save(torch::jit::freeze_module(make("  return x @ self.weight\n"))), 0);
  EXPECT_EQ(kinds(report.at("found")), std::vector<std::string>{"hidden_constant"});
  EXPECT_EQ(report.at("bytes_by_kind").at("constant").at("bytes"), 64);
}

TEST_F(DoctorTest, FindsDerivedConstantsAndWhatIsLeftOfThem) {
  Module module = make("  return x @ x.t()\n");
  const auto graph = module.get_method("forward").graph();
  for (torch::jit::Node* const node : graph->nodes()) {
    if (node->kind() != c10::aten::t) continue;
    const torch::jit::WithInsertPoint here(node);
    node->replaceInput(0, graph->insertConstant(numbers({3, 4})));
    break;
  }
  const json report = report_of(save(module), 0);
  EXPECT_EQ(kinds(report.at("found")),
            (std::vector<std::string>{"hidden_constant", "derived_constant"}));
  EXPECT_EQ(kinds(report.at("remaining")), std::vector<std::string>{"hidden_constant"});
}

TEST_F(DoctorTest, FindsBakedDevicesAndHealsThemOnDemand) {
  const std::string archive = save(make(
      "  return x @ self.weight + torch.zeros([x.size(0), 4], device=torch.device(\"cpu\"))\n"));
  const json sick = report_of(archive, 1);
  EXPECT_EQ(kinds(sick.at("found")), std::vector<std::string>{"baked_device"});
  EXPECT_THAT(std::string(sick.at("refusal")), HasSubstr("names the device cpu"));
  EXPECT_EQ(sick.at("cycles"), 0);
  const json healed = report_of("--rewrite-devices " + archive, 0);
  EXPECT_THAT(healed.at("remaining"), IsEmpty());
  EXPECT_EQ(healed.at("cycles"), 3);
}

TEST_F(DoctorTest, ComparesAModuleOfAnotherDeviceWithTheSameOnTheCpu) {
  const std::string archive =
      save(make("  return (x @ self.weight).to(torch.device(\"cuda:0\"))\n"));
  EXPECT_EQ(report_of("--rewrite-devices " + archive, 0).at("cycles"), 3);
}

TEST_F(DoctorTest, FindsPackedWeights) {
  Module module("m");
  module.register_attribute("training", c10::BoolType::get(), false);
  module.register_parameter("kernel", numbers({8, 3, 3, 3}), false);
  module.define("def forward(self, x):\n  return torch.conv2d(x, self.kernel.to_mkldnn())\n");
  const json report = report_of("--input 1x3x8x8:float32 " + save(module), 1);
  EXPECT_EQ(kinds(report.at("found")), std::vector<std::string>{"packed_weights"});
}

TEST_F(DoctorTest, FindsTensorsThatCannotBeStaged) {
  Module module("m");
  module.register_attribute("training", c10::BoolType::get(), false);
  module.register_attribute("mask", c10::TensorType::get(), numbers({4, 4}).to_sparse());
  module.define("def forward(self, x):\n  return x\n");
  const json report = report_of(save(module), 1);
  EXPECT_EQ(kinds(report.at("found")), std::vector<std::string>{"unmanaged_tensor"});
  EXPECT_THAT(std::string(report.at("refusal")), HasSubstr("tensor 'mask' is not strided"));
}

// The buffer is counted up on the device, and the count is lost with the offload.
TEST_F(DoctorTest, FindsAModuleThatRemembers) {
  Module module("m");
  module.register_attribute("training", c10::BoolType::get(), false);
  module.register_buffer("count", at::ones({4}));
  module.define("def forward(self, x):\n  self.count.add_(1)\n  return x + self.count\n");
  const json report = report_of(save(module), 1);
  EXPECT_EQ(report.at("cycles"), 1);
  EXPECT_EQ(report.at("difference"),
            "tensor 0 of the result (2x4:float) differs from the run on the CPU");
}

TEST_F(DoctorTest, FindsAModuleThatKeepsDeviceMemory) {
  Module module("m");
  module.register_attribute("training", c10::BoolType::get(), false);
  module.register_attribute("last", c10::TensorType::get(), at::ones({2, 4}));
  module.define("def forward(self, x):\n  self.last = x * 2\n  return x\n");
  const json report = report_of(save(module), 1);
  EXPECT_THAT(std::string(report.at("difference")), HasSubstr("device memory of its own"));
}

TEST_F(DoctorTest, MakesInputsFromASeed) {
  const std::string archive = save(make("  return x @ self.weight\n"));
  const json report = report_of("--input 3x4:float32 --seed 7 " + archive, 0);
  EXPECT_EQ(report.at("inputs"), json::array({"3x4:float"}));
}

TEST_F(DoctorTest, ExaminesWithoutInputsIfNothingIsToRun) {
  Module module = make("  return x @ self.weight\n");
  module.save(file("bare.pt").string());
  EXPECT_EQ(run("--cycles 0 " + file("bare.pt").string()).code, 0);
  EXPECT_THAT(error_of(file("bare.pt").string()), AllOf(HasSubstr("has no extra file 'inputs.pt'"),
                                                        HasSubstr("--input 2x4x8x8:float32")));
}

TEST_F(DoctorTest, NamesAnInputThatIsMalformed) {
  const std::string archive = save(make("  return x @ self.weight\n"));
  for (const std::string text :
       {"2x4", "2x:float32", "x2:float32", "2x4:float31", "-2:float32", "2xa:float32"}) {
    EXPECT_THAT(error_of("--input " + text + " " + archive),
                AllOf(HasSubstr("--input '" + text + "'"), HasSubstr("2x4x8x8:float32")))
        << text;
  }
}

TEST_F(DoctorTest, TellsInputsThatDoNotFitFromADefect) {
  const std::string archive = save(make("  return x @ self.weight\n"));
  EXPECT_THAT(error_of("--input 2x5:float32 " + archive), HasSubstr("do the inputs fit?"));
}

TEST_F(DoctorTest, NamesTheFileThatCannotBeRead) {
  const fs::path text = file("text.pt");
  std::ofstream(text) << "not a zip archive";
  EXPECT_THAT(error_of(file("none.pt").string()), HasSubstr("none.pt': there is no such file"));
  EXPECT_THAT(error_of(file("").string()), HasSubstr("is a folder"));
  EXPECT_THAT(error_of(text.string()), HasSubstr("text.pt': does not start as a zip archive does"));
}

TEST_F(DoctorTest, RefusesTruncatedArchivesOfEachLength) {
  const std::string archive = save(make("  return x @ self.weight\n"));
  std::ifstream stream(archive, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(stream), {}};
  for (const std::size_t parts : {1U, 5U, 9U}) {
    const fs::path part = file("part.pt");
    std::ofstream(part, std::ios::binary) << whole.substr(0, whole.size() * parts / 10);
    EXPECT_THAT(error_of(part.string()), HasSubstr("part.pt': is no TorchScript archive, or a "
                                                   "damaged one: "))
        << parts;
  }
}

TEST_F(DoctorTest, RefusesUnknownFlagsAndCountsThatAreNone) {
  const std::string archive = save(make("  return x @ self.weight\n"));
  EXPECT_THAT(error_of("--colour " + archive), HasSubstr("--colour"));
  EXPECT_THAT(error_of("--cycles -1 " + archive), HasSubstr("--cycles"));
  EXPECT_THAT(error_of(""), HasSubstr("archive is required"));
}

TEST_F(DoctorTest, ExplainsItself) {
  const Result result = run("--help");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("--rewrite-devices"));
}

TEST_F(DoctorTest, FindsTheShippedModelsHealthy) {
  for (const std::string name : {"autoencoder_kl.traced", "clip.frozen", "wan.traced"}) {
    const json report =
        report_of(std::string("--rewrite-devices " OFFSTAGE_SHIPPED_MODELS "/") + name + ".pt", 0);
    EXPECT_EQ(report.at("cycles"), 3) << name;
  }
}

}  // namespace
}  // namespace offstage::tools
