// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/warm_up/run_warm_up.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace offstage {
namespace {

struct Plain {
  void warm_up(const WarmUpRequest& request) { requests.push_back(request); }
  std::vector<WarmUpRequest> requests;
};

struct WithGenericRun : Plain {
  [[nodiscard]] std::int64_t dummy_run_num_frames() const { return frames; }
  std::int64_t frames = 2;
};

TEST(RunWarmUpTest, RunsTheRecipeTwiceOrAsOftenAsItIsTold) {
  Plain pipeline;
  EXPECT_TRUE(run_warm_up(pipeline, {.height = 64}, {.width = 32}));
  ASSERT_EQ(pipeline.requests.size(), 2U);
  EXPECT_EQ(pipeline.requests[1].height, 64);
  EXPECT_EQ(pipeline.requests[1].width, 32);
  EXPECT_TRUE(run_warm_up(pipeline, {.height = 64}, {}, 1));
  EXPECT_EQ(pipeline.requests.size(), 3U);
  EXPECT_THROW(run_warm_up(pipeline, {.height = 64}, {}, 0), InvalidArgument);
  EXPECT_EQ(pipeline.requests.size(), 3U);
}

TEST(RunWarmUpTest, WithoutARecipeNothingIsRun) {
  Plain pipeline;
  EXPECT_FALSE(run_warm_up(pipeline, {}));
  EXPECT_TRUE(pipeline.requests.empty());
}

TEST(RunWarmUpTest, AGenericRunGoesBeforeTheRecipe) {
  WithGenericRun pipeline;
  EXPECT_TRUE(run_warm_up(pipeline, {.num_inference_steps = 7}));
  ASSERT_EQ(pipeline.requests.size(), 2U);
  EXPECT_EQ(pipeline.requests[0].num_frames, 2);
  EXPECT_EQ(pipeline.requests[0].num_inference_steps, 1);
}

TEST(RunWarmUpTest, AGenericRunMayChangeThePipelineAndCountInAnyInteger) {
  struct Counting : Plain {
    std::uint8_t dummy_run_num_frames() { return ++asked; }
    std::uint8_t asked = 7;
  } pipeline;
  EXPECT_TRUE(run_warm_up(pipeline, {.num_inference_steps = 7}));
  ASSERT_EQ(pipeline.requests.size(), 2U);
  EXPECT_EQ(pipeline.requests[0].num_frames, 8);
}

TEST(RunWarmUpTest, NoFramesOptOutOfTheGenericRun) {
  WithGenericRun pipeline;
  pipeline.frames = 0;
  EXPECT_FALSE(run_warm_up(pipeline, {}));
  EXPECT_TRUE(run_warm_up(pipeline, {.num_inference_steps = 7}));
  ASSERT_EQ(pipeline.requests.size(), 2U);
  EXPECT_EQ(pipeline.requests[0].num_inference_steps, 7);
}

TEST(RunWarmUpTest, ARecipeOutOfRangeRunsNothing) {
  WithGenericRun pipeline;
  EXPECT_THROW(run_warm_up(pipeline, {.height = 0}), InvalidArgument);
  pipeline.frames = -1;
  EXPECT_THROW(run_warm_up(pipeline, {}), InvalidArgument);
  EXPECT_TRUE(pipeline.requests.empty());
}

TEST(RunWarmUpTest, WhatThePipelineThrowsPasses) {
  struct Failing {
    void warm_up(const WarmUpRequest& /*request*/) { throw std::runtime_error("no memory"); }
  } pipeline;
  EXPECT_THROW(run_warm_up(pipeline, {.height = 64}), std::runtime_error);
}

}  // namespace
}  // namespace offstage
