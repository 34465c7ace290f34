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
              HasSubstr("'height': expected a whole number in [1, 9223372036854775807], found the "
                        "string \"720\""));
  EXPECT_THAT(refusal(R"({"width": 1.5})"), HasSubstr("'width': expected a whole number"));
  EXPECT_THAT(refusal(R"({"num_frames": true})"), HasSubstr("'num_frames'"));
  EXPECT_THAT(refusal(R"({"num_inference_steps": 18446744073709551615})"),
              HasSubstr("found the number 18446744073709551615"));
  EXPECT_THAT(refusal(R"({"guidance_scale": null})"),
              HasSubstr("'guidance_scale': expected a finite number, found null"));
  EXPECT_THAT(refusal(R"({"task": ["t2v"]})"),
              HasSubstr("'task': expected a boolean, a number or a string"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("the document: expected an object, found an array"));
}

TEST(WarmUpRecipeTest, ValuesThatNothingCanBeSampledWithAreErrorsThatNameTheKey) {
  EXPECT_THAT(refusal(R"({"height": 0})"), HasSubstr("'height'"));
  EXPECT_THAT(refusal(R"({"width": -8})"), HasSubstr("found -8"));
  EXPECT_THAT(refusal(R"({"num_inference_steps": 0})"), HasSubstr("'num_inference_steps'"));
  EXPECT_THAT(refusal(R"({"num_frames": -1})"), HasSubstr("in [0, 9223372036854775807], found -1"));
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
  EXPECT_THAT(refusal(R"({"height": 720,})"),
              HasSubstr("expected valid JSON, found byte 16: parse error"));
  EXPECT_THAT(refusal(""), HasSubstr("valid JSON"));
  EXPECT_THAT(refusal(std::string_view("{}\0{}", 5)), HasSubstr("byte 3: a zero byte"));
  EXPECT_THAT(refusal("{} {}"), HasSubstr("valid JSON"));
  EXPECT_THAT(refusal(R"({"height": 1, "height": 1})"),
              HasSubstr("'height': expected each key once"));
  EXPECT_THAT(refusal([] {
                static_cast<void>(WarmUpRecipe{.extra_arguments = {{"text", "\xFF"}}}.to_json());
              }),
              HasSubstr("\"text\": expected text in UTF-8, found other bytes"));
  EXPECT_THAT(refusal([] {
                static_cast<void>(WarmUpRecipe{.extra_arguments = {{"a\xFF", true}}}.to_json());
              }),
              HasSubstr("expected text in UTF-8, found other bytes"));
}

TEST(WarmUpRecipeTest, NumbersThatNothingHoldsAreErrorsThatNameTheKey) {
  EXPECT_THAT(refusal(R"({"guidance_scale": 1e400})"),
              HasSubstr("'guidance_scale': expected a finite number, found the number 1e400"));
  EXPECT_THAT(refusal(R"({"height": 1e400})"), HasSubstr("'height': expected a whole number in"));
  for (const char* const number :
       {"9223372036854775808", "18446744073709551616", "-9223372036854775809"}) {
    EXPECT_THAT(refusal("{\"x\": " + std::string(number) + "}"),
                HasSubstr("'x': expected a whole number of 64 bits, found the number " +
                          std::string(number)));
  }
  EXPECT_EQ(refusal(R"({"x": 9223372036854775807, "y": -9223372036854775808})"), "not refused");
  EXPECT_EQ(WarmUpRecipe::parse(R"({"x": 18446744073709551616.0})").extra_arguments.at("x"),
            ExtraArgument(18446744073709551616.0));
}

TEST(WarmUpRecipeTest, DepthCannotExhaustTheStackAndLongTextsAreNotRepeated) {
  const std::string deep = std::string(1'000'000, '[');
  EXPECT_THAT(refusal(deep), HasSubstr("the document: expected an object, found an array"));
  EXPECT_THAT(refusal("{\"a\":" + deep),
              HasSubstr("'a': expected a boolean, a number or a string"));
  EXPECT_THAT(refusal(R"({"height":)" + deep), HasSubstr("found an array"));
  const std::string text(1'000'000, 'x');
  EXPECT_THAT(refusal(R"({"height": ")" + text + "\"}"),
              HasSubstr("found the string of 1000000 bytes"));
  EXPECT_THAT(refusal(R"({"height": 1.)" + std::string(1000, '5') + "}"),
              ::testing::EndsWith("found the number 1." + std::string(62, '5') + "..."));
  EXPECT_THAT(refusal(R"({"": 1})"), HasSubstr("'': expected a name for each extra argument"));
  EXPECT_THAT(refusal("{\"" + text + "\": null}"),
              HasSubstr("the key of 1000000 bytes: expected a boolean"));
}

}  // namespace
}  // namespace offstage
