// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/warm_up/warm_up_recipe.hpp>

#include <gmock/gmock.h>

#include <functional>
#include <limits>

namespace offstage {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "not refused";
}
std::string refusal(std::string_view json) {
  return refusal([json] { static_cast<void>(WarmUpRecipe::parse(json)); });
}

TEST(WarmUpRecipeTest, NothingIsNoWarmUp) {
  EXPECT_TRUE(WarmUpRecipe{}.is_empty());
  EXPECT_TRUE(WarmUpRecipe::parse("null").is_empty());
  EXPECT_TRUE(WarmUpRecipe::parse("{}").is_empty());
  EXPECT_FALSE(WarmUpRecipe{.num_frames = 0}.is_empty());
  EXPECT_FALSE(WarmUpRecipe{.guidance_scale = 1.0}.is_empty());
  EXPECT_FALSE((WarmUpRecipe{.extra_arguments = {{"task", "t2v"}}}.is_empty()));
}

TEST(WarmUpRecipeTest, FiveKeysAreSamplingParametersAndAllOthersExtraArguments) {
  const WarmUpRecipe recipe = WarmUpRecipe::parse(
      R"({"height": 720, "width": 1280, "num_inference_steps": 2, "num_frames": 241,
          "guidance_scale": 1, "task": "t2va", "seconds": 10.0, "layers": 3, "audio": true})");
  EXPECT_EQ(recipe.height, 720);
  EXPECT_EQ(recipe.width, 1280);
  EXPECT_EQ(recipe.num_inference_steps, 2);
  EXPECT_EQ(recipe.num_frames, 241);
  EXPECT_EQ(recipe.guidance_scale, 1.0);
  const ExtraArguments expected = {{"task", std::string("t2va")},
                                   {"seconds", 10.0},
                                   {"layers", std::int64_t{3}},
                                   {"audio", true}};
  EXPECT_EQ(recipe.extra_arguments, expected);
}

TEST(WarmUpRecipeTest, ComesBackFromItsJson) {
  const WarmUpRecipe recipe{.height = 1,
                            .num_inference_steps = std::numeric_limits<std::int64_t>::max(),
                            .guidance_scale = 0.1,
                            .extra_arguments = {{"a/b", -1.5}, {"text", "\"\n"}, {"no", false}}};
  EXPECT_EQ(WarmUpRecipe::parse(recipe.to_json()), recipe);
  EXPECT_EQ(WarmUpRecipe{}.to_json(), "{}");
}

TEST(WarmUpRecipeTest, WrongTypesAreErrorsThatNameTheKey) {
  EXPECT_THAT(refusal(R"({"height": "720"})"),
              HasSubstr("'height': expected a whole number of at least 1, found \"720\""));
  EXPECT_THAT(refusal(R"({"width": 1.5})"), HasSubstr("'width': expected a whole number"));
  EXPECT_THAT(refusal(R"({"num_frames": true})"), HasSubstr("'num_frames'"));
  EXPECT_THAT(refusal(R"({"num_inference_steps": 18446744073709551615})"),
              HasSubstr("found 18446744073709551615"));
  EXPECT_THAT(refusal(R"({"guidance_scale": null})"),
              HasSubstr("'guidance_scale': expected a finite number, found null"));
  EXPECT_THAT(refusal(R"({"task": ["t2v"]})"),
              HasSubstr("'task': expected a boolean, a number or a string"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("the document: expected an object, found [1]"));
}

TEST(WarmUpRecipeTest, ValuesThatNothingCanBeSampledWithAreErrorsThatNameTheKey) {
  EXPECT_THAT(refusal(R"({"height": 0})"), HasSubstr("'height'"));
  EXPECT_THAT(refusal(R"({"width": -8})"), HasSubstr("found -8"));
  EXPECT_THAT(refusal(R"({"num_inference_steps": 0})"), HasSubstr("'num_inference_steps'"));
  EXPECT_THAT(refusal(R"({"num_frames": -1})"), HasSubstr("at least 0"));
  EXPECT_EQ(refusal(R"({"num_frames": 0})"), "not refused");
  const auto checked = [](WarmUpRecipe recipe) { return refusal([&recipe] { recipe.check(); }); };
  EXPECT_THAT(checked({.height = -1}), HasSubstr("'height'"));
  EXPECT_THAT(checked({.guidance_scale = std::numeric_limits<double>::quiet_NaN()}),
              HasSubstr("'guidance_scale': expected a finite number, found"));
  EXPECT_THAT(checked({.extra_arguments = {{"x", std::numeric_limits<double>::infinity()}}}),
              HasSubstr("'x': expected a finite number"));
  EXPECT_THAT(checked({.extra_arguments = {{"", true}}}), HasSubstr("an empty one"));
  EXPECT_THAT(checked({.extra_arguments = {{"width", std::int64_t{8}}}}),
              HasSubstr("'width': expected the sampling parameter itself"));
}

TEST(WarmUpRecipeTest, TextThatIsNoJsonIsAnErrorThatSaysWhere) {
  EXPECT_THAT(refusal(R"({"height": 720,})"), HasSubstr("expected valid JSON, found parse error"));
  EXPECT_THAT(refusal(""), HasSubstr("valid JSON"));
  EXPECT_THAT(refusal(R"({"guidance_scale": 1e400})"), HasSubstr("1e400"));
  EXPECT_THAT(refusal("{} {}"), HasSubstr("valid JSON"));
  EXPECT_THAT(refusal(R"({"height": 1, "height": 1})"),
              HasSubstr("'height': expected each key once"));
  EXPECT_THAT(refusal([] {
                static_cast<void>(WarmUpRecipe{.extra_arguments = {{"text", "\xFF"}}}.to_json());
              }),
              HasSubstr("UTF-8"));
}

}  // namespace
}  // namespace offstage
