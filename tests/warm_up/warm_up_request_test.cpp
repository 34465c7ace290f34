// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/warm_up/warm_up_request.hpp>

#include <gtest/gtest.h>

#include <limits>

namespace offstage {
namespace {

constexpr WarmUpDefaults kCaller = {.height = 480, .width = 640, .guidance_scale = 4.0};

TEST(WarmUpRequestTest, IsAboutTextOnlyForOneOutputAndTellsThatItIsADummy) {
  const WarmUpRequest request = make_warm_up_request({.height = 8});
  EXPECT_EQ(request.prompt, "dummy run");
  EXPECT_EQ(request.num_outputs, 1);
  EXPECT_TRUE(request.is_dummy());
  EXPECT_TRUE(is_dummy(request.id));
  EXPECT_FALSE(is_dummy("42"));
  EXPECT_FALSE(is_dummy(""));
}

TEST(WarmUpRequestTest, WhatTheRecipeSaysGoesBeforeWhatTheCallerSays) {
  const WarmUpRequest request = make_warm_up_request({.height = 720,
                                                      .width = 1280,
                                                      .num_inference_steps = 2,
                                                      .num_frames = 241,
                                                      .guidance_scale = 1.0},
                                                     kCaller);
  EXPECT_EQ(request.height, 720);
  EXPECT_EQ(request.width, 1280);
  EXPECT_EQ(request.num_inference_steps, 2);
  EXPECT_EQ(request.num_frames, 241);
  EXPECT_EQ(request.guidance_scale, 1.0);
}

TEST(WarmUpRequestTest, WhatTheRecipeDoesNotSayIsTheCallersOrTheDefault) {
  const WarmUpRequest request =
      make_warm_up_request({.extra_arguments = {{"task", "t2v"}}}, kCaller);
  EXPECT_EQ(request.height, 480);
  EXPECT_EQ(request.width, 640);
  EXPECT_EQ(request.num_inference_steps, 1);
  EXPECT_EQ(request.num_frames, 0);
  EXPECT_EQ(request.guidance_scale, 4.0);
}

TEST(WarmUpRequestTest, ExtraArgumentsLieOverTheTwoGuidanceScalesOfClassifiers) {
  const ExtraArguments expected = {
      {"cfg_img_scale", 1.0}, {"cfg_text_scale", 2.5}, {"task", std::string("t2v")}};
  EXPECT_EQ(make_warm_up_request({.extra_arguments = {{"task", "t2v"}, {"cfg_text_scale", 2.5}}})
                .extra_arguments,
            expected);
}

TEST(WarmUpRequestTest, TheGenericRequestHasOneStep) {
  const WarmUpRequest request = make_generic_warm_up_request(2, kCaller);
  EXPECT_EQ(request.num_inference_steps, 1);
  EXPECT_EQ(request.num_frames, 2);
  EXPECT_EQ(request.height, 480);
  EXPECT_EQ(request.guidance_scale, 4.0);
  EXPECT_EQ(request.extra_arguments.size(), 2U);
}

TEST(WarmUpRequestTest, WhatIsOutOfRangeIsRefused) {
  EXPECT_THROW(static_cast<void>(make_warm_up_request({.width = 0})), InvalidArgument);
  EXPECT_THROW(static_cast<void>(make_warm_up_request({.width = 8}, {.height = -1})),
               InvalidArgument);
  EXPECT_THROW(static_cast<void>(make_warm_up_request(
                   {.width = 8}, {.guidance_scale = std::numeric_limits<double>::infinity()})),
               InvalidArgument);
  EXPECT_THROW(static_cast<void>(make_generic_warm_up_request(0)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(make_generic_warm_up_request(1, {.width = -1})), InvalidArgument);
}

}  // namespace
}  // namespace offstage
