// SPDX-License-Identifier: Apache-2.0
//
// Runs the program itself.
#include "../support/program_test.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace text_to_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Result = offstage::ProgramResult;

class TextToImageProgramTest : public offstage::ProgramTest {
 protected:
  /// Runs with a small picture, unless the arguments say otherwise.
  Result run(const std::string& arguments) const {
    std::string command = std::string(TEXT_TO_IMAGE_PROGRAM) + " " + arguments;
    if (arguments.find("--output") == std::string::npos) {
      command += " --output " + file("x.png").string();
    }
    return run_command(command);
  }

  /// A run that must fail with one line on stderr and nothing on stdout.
  std::string error_of(const std::string& arguments) const {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 1) << arguments;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
    EXPECT_THAT(result.error, StartsWith("text_to_image: "));
    return result.error;
  }

  nlohmann::json report_of(const std::string& arguments) const {
    const Result result = run("--json " + arguments);
    EXPECT_EQ(result.code, 0) << result.error;
    return nlohmann::json::parse(result.out);
  }

  /// A copy of the weights that a test may spoil.
  fs::path own_weights() const {
    const fs::path copy = file("weights");
    fs::copy(TEXT_TO_IMAGE_WEIGHTS, copy);
    return copy;
  }
};

const std::string kQuick = "--steps 2 --threads 1 --prompt 'a red circle on a blue background' ";

TEST_F(TextToImageProgramTest, DrawsOnTheCpu) {
  const auto report = report_of(kQuick + "--device cpu");
  EXPECT_EQ(report["device"], "cpu (nothing to stage)");
  EXPECT_EQ(report["sha256"].get<std::string>().size(), 64U);
  EXPECT_GT(fs::file_size(file("x.png")), 100U);
}

TEST_F(TextToImageProgramTest, DrawsTheSamePicturesStagedWhereTheResidentPipelineRunsOutOfMemory) {
  const auto report = report_of("--steps 2 --threads 1 --device sim --verify-staging");
  EXPECT_EQ(report["verified"], true);
  EXPECT_EQ(report["identical"], true);
  EXPECT_EQ(report["resident_out_of_memory"], true);
  EXPECT_LE(report["staged_peak"], report["capacity"]);
  EXPECT_GT(report["resident_peak"], report["capacity"]);
  EXPECT_EQ(report["sha256"], report_of("--steps 2 --threads 1 --device cpu")["sha256"]);
  ASSERT_EQ(report["components"].size(), 3U);
  for (const auto& part : report["components"]) {
    SCOPED_TRACE(part["path"]);
    const auto tensors = part["tensors"];
    EXPECT_EQ(part["residence"], "staged");
    EXPECT_EQ(part["loads"], 1);
    EXPECT_EQ(part["retries"], 0);
    EXPECT_EQ(part["moved"]["allocations"], 1);
    EXPECT_EQ(part["moved"]["copies"], 1);
    EXPECT_EQ(part["moved"]["host_waits"], 0);
    EXPECT_GE(part["moved"]["bytes"], part["bytes"]);
    EXPECT_EQ(part["by_storage"]["copies"], tensors);
    EXPECT_EQ(part["by_storage"]["allocations"], tensors);
    EXPECT_EQ(part["by_storage"]["host_waits"], 1);
    EXPECT_EQ(part["by_tensor"]["copies"], tensors);
    EXPECT_EQ(part["by_tensor"]["host_waits"], tensors);
    EXPECT_FALSE(part["cache"]["reason"].get<std::string>().empty());
  }
}

TEST_F(TextToImageProgramTest, LoadsInPiecesWhereOneCopyWouldNotFit) {
  const auto report = report_of(kQuick + "--device sim --capacity 10MiB");
  EXPECT_EQ(report["identical"], true);
  EXPECT_EQ(report["components"][1]["retries"], 1);
  EXPECT_LE(report["staged_peak"], report["capacity"]);
}

TEST_F(TextToImageProgramTest, KeepsAComponentResidentThatThePolicyNames) {
  const auto report =
      report_of(kQuick + R"(--device sim --dlo-offload-components '{"text_encoder": false}')");
  EXPECT_EQ(report["components"][0]["residence"], "resident");
  EXPECT_EQ(report["components"][0]["moved"]["copies"], 0);
  EXPECT_EQ(report["components"][1]["residence"], "staged");
  EXPECT_EQ(report["components"][2]["residence"], "staged");
  EXPECT_EQ(report["identical"], true);
}

TEST_F(TextToImageProgramTest, ObeysTheRetentionPolicy) {
  const auto never = report_of(kQuick + "--device sim --retention never");
  const auto always = report_of(kQuick + "--device sim --retention always");
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(never["components"][i]["cache"]["decision"], "released");
    EXPECT_EQ(always["components"][i]["cache"]["decision"], "kept");
  }
  EXPECT_EQ(never["sha256"], always["sha256"]);
}

TEST_F(TextToImageProgramTest, PrintsWhatTheMovesCost) {
  const Result result = run(kQuick + "--device sim");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("OUT OF MEMORY"), HasSubstr("identical, byte for byte"),
                                HasSubstr("counted by the device"), HasSubstr("per storage"),
                                HasSubstr("simulated accelerator")));
}

TEST_F(TextToImageProgramTest, NamesTheSmallestCapacityThatWorks) {
  const std::string error = error_of(kQuick + "--device sim --capacity 2MiB");
  EXPECT_THAT(error, HasSubstr("too small"));
  const std::string key = "the smallest that works is ";
  const auto begin = error.find(key);
  ASSERT_NE(begin, std::string::npos) << error;
  std::string capacity = error.substr(begin + key.size());
  capacity.pop_back();
  EXPECT_EQ(run(kQuick + "--device sim --capacity " + capacity).code, 0) << capacity;
  const int less = std::stoi(capacity) - 2;
  EXPECT_EQ(run(kQuick + "--device sim --capacity " + std::to_string(less) + "MiB").code, 1);
}

TEST_F(TextToImageProgramTest, ReportsTheRaceThatAMissingWaitMakes) {
  const std::string error = error_of(kQuick + "--device sim --break drop-wait=1");
  EXPECT_THAT(error, HasSubstr("race: 'aten::"));
  EXPECT_THAT(error, HasSubstr("which 'copy to the device' (sim:0 stream"));
  EXPECT_THAT(error, HasSubstr("writes, and nothing orders the two: before 'aten::"));
  EXPECT_THAT(error_of(kQuick + "--device sim --break drop-record=2"), HasSubstr("race: 'free'"));
}

TEST_F(TextToImageProgramTest, RefusesToBreakWhatIsNotThere) {
  EXPECT_THAT(error_of(kQuick + "--device sim --break drop-copy=1"), HasSubstr("'drop-copy=1'"));
  EXPECT_THAT(error_of(kQuick + "--device sim --break drop-wait=0"), HasSubstr("from 1 on"));
  EXPECT_THAT(error_of(kQuick + "--device cpu --break drop-wait=1"), HasSubstr("simulated"));
  EXPECT_THAT(error_of(kQuick + "--device sim --break drop-wait=100000"),
              HasSubstr("makes only 6 calls"));
}

TEST_F(TextToImageProgramTest, NamesAnUnknownWordAndTheKnownOnes) {
  EXPECT_THAT(error_of("--prompt 'a red hexagon'"),
              AllOf(HasSubstr("unknown word 'hexagon'"), HasSubstr("circle")));
}

TEST_F(TextToImageProgramTest, RefusesPoliciesThatAreMalformedOrNameWhatIsNotThere) {
  const std::string flag = kQuick + "--device cpu --dlo-offload-components ";
  EXPECT_THAT(error_of(flag + R"('{"text_encoder": 0}')"), HasSubstr("/text_encoder"));
  EXPECT_THAT(error_of(flag + "'[]'"), HasSubstr("object"));
  EXPECT_THAT(error_of(flag + "'{'"), HasSubstr("policy"));
  EXPECT_THAT(
      error_of(flag + R"('{"text_decoder": true}')"),
      AllOf(HasSubstr("text_decoder"), HasSubstr("text_encoder"), HasSubstr("vae_decoder")));
  EXPECT_THAT(error_of(flag + R"('{"transformer": false}')"), HasSubstr("transformer"));
}

TEST_F(TextToImageProgramTest, SaysWhichWeightsAreMissing) {
  EXPECT_THAT(error_of(kQuick + "--device cpu --weights " + file("none").string()),
              AllOf(HasSubstr("text_encoder.safetensors"), HasSubstr("cannot be opened")));
}

TEST_F(TextToImageProgramTest, SaysThatWeightsAreTruncatedWithBothSizes) {
  const fs::path weights = own_weights();
  const auto size = fs::file_size(weights / "transformer.safetensors");
  fs::resize_file(weights / "transformer.safetensors", size - 1);
  EXPECT_THAT(error_of(kQuick + "--device cpu --weights " + weights.string()),
              AllOf(HasSubstr("transformer.safetensors"), HasSubstr("truncated"),
                    HasSubstr(std::to_string(size)), HasSubstr(std::to_string(size - 1))));
}

TEST_F(TextToImageProgramTest, RefusesWeightsOfAnotherComponent) {
  const fs::path weights = own_weights();
  fs::copy_file(weights / "text_encoder.safetensors", weights / "vae_decoder.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(error_of(kQuick + "--device cpu --weights " + weights.string()),
              AllOf(HasSubstr("vae_decoder.safetensors"), HasSubstr("is not in the file")));
}

TEST_F(TextToImageProgramTest, SaysThatTheOutputCannotBeWrittenBeforeItDraws) {
  EXPECT_THAT(error_of(kQuick + "--device cpu --output /nonexistent/x.png"),
              HasSubstr("cannot write '/nonexistent/x.png'"));
}

TEST_F(TextToImageProgramTest, RefusesACapacityThatIsNoSizeOrNotOfASimulation) {
  EXPECT_THAT(error_of(kQuick + "--device sim --capacity many"), HasSubstr("'many'"));
  EXPECT_THAT(error_of(kQuick + "--device cpu --capacity 27MiB"), HasSubstr("simulated"));
}

TEST_F(TextToImageProgramTest, RefusesUnknownFlagsAndValues) {
  EXPECT_THAT(error_of("--colour"), HasSubstr("--colour"));
  EXPECT_THAT(error_of("--device tpu"), HasSubstr("tpu"));
  EXPECT_THAT(error_of("--retention sometimes"), HasSubstr("sometimes"));
  EXPECT_THAT(error_of("--steps 0"), HasSubstr("--steps"));
  EXPECT_THAT(error_of("--seed -1"), HasSubstr("'-1' is not a whole number"));
  EXPECT_THAT(error_of("--seed 99999999999999999999"), HasSubstr("is not a whole number"));
  EXPECT_THAT(error_of("--guidance nan"), HasSubstr("'nan' is not a number"));
  EXPECT_THAT(error_of("--capacity ''"), HasSubstr("--capacity: must not be empty"));
  EXPECT_THAT(error_of("--dlo-offload-components ''"), HasSubstr("must not be empty"));
  EXPECT_THAT(error_of("--evaluate --prompt circle"), HasSubstr("--prompt"));
}

TEST_F(TextToImageProgramTest, RefusesWeightsThatAreNoNumbers) {
  const fs::path weights = own_weights();
  const auto file = weights / "transformer.safetensors";
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const std::vector<char> ones(1'000'000, '\xff');
  stream.seekp(static_cast<std::streamoff>(fs::file_size(file)) - 1'000'000);
  stream.write(ones.data(), 1'000'000);
  stream.close();
  EXPECT_THAT(error_of(kQuick + "--device cpu --weights " + weights.string()),
              HasSubstr("not made of numbers"));
}

TEST_F(TextToImageProgramTest, SaysThatItsReportCannotBeWritten) {
  const Result result = run(kQuick + "--device cpu --json > /dev/full");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr("standard output"));
}

TEST_F(TextToImageProgramTest, ExplainsItsFlags) {
  const Result result = run("--help");
  EXPECT_EQ(result.code, 0);
  for (const char* flag :
       {"--prompt", "--steps", "--guidance", "--seed", "--device", "--capacity",
        "--dlo-offload-components", "--retention", "--output", "--json", "--evaluate"}) {
    EXPECT_THAT(result.out, HasSubstr(flag));
  }
}

}  // namespace
}  // namespace text_to_image
