// SPDX-License-Identifier: Apache-2.0
#include "evaluation.hpp"
#include "fingerprint.hpp"
#include "judge.hpp"
#include "pipeline.hpp"

#include <offstage/checkpoint/safetensors_file.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace text_to_image {
namespace {

const std::filesystem::path kWeights = TEXT_TO_IMAGE_WEIGHTS;

TEST(PipelineTest, ShipsWeightsOfAtMostFiveMegabytesInBfloat16) {
  std::uintmax_t bytes = 0;
  for (const char* name : {"text_encoder", "transformer", "vae_decoder"}) {
    const auto path = kWeights / (std::string(name) + ".safetensors");
    bytes += std::filesystem::file_size(path);
    const auto file = offstage::SafetensorsFile::open(path);
    EXPECT_GT(file.tensors().size(), 20U);
    for (const auto& entry : file.tensors()) {
      const bool buffer =
          entry.name == "frequencies" || entry.name == "mean" || entry.name == "deviation";
      EXPECT_EQ(entry.dtype, buffer ? c10::ScalarType::Float : c10::ScalarType::BFloat16)
          << entry.name;
    }
  }
  EXPECT_LE(bytes, 5'000'000U);
}

TEST(PipelineTest, HasThreeComponentsInFloat32) {
  const Pipeline pipeline(kWeights, {});
  ASSERT_EQ(pipeline.parts().size(), 3U);
  EXPECT_EQ(pipeline.parts()[0].path, "text_encoder");
  EXPECT_EQ(pipeline.parts()[1].path, "transformer");
  EXPECT_EQ(pipeline.parts()[2].path, "vae_decoder");
  for (const auto& part : pipeline.parts()) {
    for (const auto& item : part.tensors) {
      EXPECT_EQ(item.tensor.scalar_type(), c10::ScalarType::Float) << item.path;
      EXPECT_FALSE(item.tensor.requires_grad()) << item.path;
    }
  }
}

TEST(PipelineTest, DrawsTheSameForTheSameSeedAndAnotherForAnother) {
  Pipeline pipeline(kWeights, {});
  Request request{.scenes = {Scene{}}, .steps = 2};
  const std::string first = fingerprint(pipeline.generate(request));
  EXPECT_EQ(fingerprint(pipeline.generate(request)), first);
  request.seed = 1;
  EXPECT_NE(fingerprint(pipeline.generate(request)), first);
}

TEST(PipelineTest, DrawsCombinationsThatItWasNeverTrainedOn) {
  Pipeline pipeline(kWeights, {});
  std::vector<Scene> scenes = held_out_scenes();
  std::vector<Scene> some;
  for (std::size_t i = 0; i < scenes.size(); i += 12) some.push_back(scenes[i]);
  const auto pictures = pipeline.generate({.scenes = some});
  int right = 0;
  for (std::size_t i = 0; i < some.size(); ++i)
    right += judge(some[i], pictures[i]).right() ? 1 : 0;
  EXPECT_GE(right, 7) << "of 8";
}

TEST(PipelineTest, DoesNotDrawThemWithoutTheText) {
  Pipeline pipeline(kWeights, {});
  std::vector<Scene> some = held_out_scenes();
  some.resize(8);
  const auto pictures = pipeline.generate({.scenes = some, .steps = 8, .without_text = true});
  int right = 0;
  for (std::size_t i = 0; i < some.size(); ++i)
    right += judge(some[i], pictures[i]).right() ? 1 : 0;
  EXPECT_LE(right, 1) << "of 8";
}

}  // namespace
}  // namespace text_to_image
