// SPDX-License-Identifier: Apache-2.0
// With learned bounds the first components of a run pay for what is not known yet: the warm-up
// does, or else the first request.
#include "pipeline.hpp"

#include <offstage/retention/learned_retention.hpp>
#include <offstage/testing/simulator.hpp>
#include <offstage/warm_up/run_warm_up.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

namespace text_to_image {
namespace {

const std::filesystem::path kWeights = TEXT_TO_IMAGE_WEIGHTS;

class WarmUpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    simulator_.reset();
    placing_.context = offstage::DeviceContext::create(simulator_.device(),
                                                       {.host_memory = simulator_.host_memory()});
    cache_ = std::make_shared<offstage::BoundedAllocatorCache>(
        simulator_.device(), placing_.context->telemetry(),
        std::make_shared<offstage::LearnedRetention>());
    placing_.cache = cache_;
    pipeline_ = std::make_unique<Pipeline>(kWeights, placing_);
  }
  void TearDown() override {
    pipeline_.reset();
    EXPECT_NO_THROW(simulator_.reset());
  }

  [[nodiscard]] std::int64_t releases() const { return cache_->counters().releases; }
  void draw(std::size_t pictures) {
    Request request;
    request.steps = 3;
    request.scenes.resize(pictures);
    static_cast<void>(pipeline_->generate(request));
  }

  offstage::testing::Simulator& simulator_ = offstage::testing::Simulator::install(
      {.device_count = 1, .capacity_bytes = std::int64_t{4} << 30});
  Placing placing_;
  std::shared_ptr<offstage::BoundedAllocatorCache> cache_;
  std::unique_ptr<Pipeline> pipeline_;
};

TEST_F(WarmUpTest, TheRecipeAsksForTheLargestPicturesAndAsManyAsAreDrawnAtOnce) {
  EXPECT_EQ(Pipeline::warm_up_recipe().to_json(),
            R"({"guidance_scale":1.0,"height":32,"num_inference_steps":2,"prompts":9,"width":32})");
}

TEST_F(WarmUpTest, AllReleasesOfTheColdStartFallIntoTheWarmUp) {
  EXPECT_TRUE(offstage::run_warm_up(*pipeline_, Pipeline::warm_up_recipe()));
  EXPECT_EQ(releases(), 4);
  for (const std::size_t pictures : {9U, 1U, 4U, 9U}) draw(pictures);
  EXPECT_EQ(releases(), 4) << "a request pays for none";
}

TEST_F(WarmUpTest, WithoutAWarmUpTheyFallIntoTheFirstRequestAndOneIntoTheSecond) {
  draw(9);
  EXPECT_EQ(releases(), 3) << "one for each component";
  draw(9);
  EXPECT_EQ(releases(), 4) << "only now what all three left lies beside each other";
  for (const std::size_t pictures : {9U, 1U, 4U, 9U}) draw(pictures);
  EXPECT_EQ(releases(), 4);
}

TEST_F(WarmUpTest, ARequestThatThePipelineCannotDrawIsRefused) {
  EXPECT_THROW(pipeline_->warm_up(offstage::make_warm_up_request({.height = 64, .width = 64})),
               std::invalid_argument);
  EXPECT_THROW(pipeline_->warm_up(offstage::make_warm_up_request({.height = 32, .width = 32})),
               std::invalid_argument);
}

}  // namespace
}  // namespace text_to_image
