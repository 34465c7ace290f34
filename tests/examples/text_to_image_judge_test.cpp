// SPDX-License-Identifier: Apache-2.0
#include "judge.hpp"

#include <gtest/gtest.h>

namespace text_to_image {
namespace {

TEST(JudgeTest, FindsEveryIdealPictureRight) {
  for (const Scene& scene : all_combinations()) {
    const Verdict verdict = judge(scene, draw(scene));
    EXPECT_TRUE(verdict.right()) << describe(scene);
    EXPECT_GT(verdict.overlap, 0.97) << describe(scene);
    EXPECT_LT(verdict.colour_error, 0.01) << describe(scene);
  }
}

TEST(JudgeTest, FindsEveryOtherShapeWrong) {
  for (const Scene& asked : all_combinations()) {
    Scene drawn = asked;
    for (drawn.shape = 0; drawn.shape < 6; ++drawn.shape) {
      EXPECT_EQ(judge(asked, draw(drawn)).right(), drawn.shape == asked.shape)
          << describe(asked) << " / " << describe(drawn);
    }
  }
}

TEST(JudgeTest, FindsTheOtherSizeAndEveryOtherPositionWrong) {
  for (const Scene& asked : all_combinations()) {
    Scene drawn = asked;
    drawn.size = 1 - asked.size;
    EXPECT_FALSE(judge(asked, draw(drawn)).right()) << describe(asked);
    drawn = asked;
    drawn.position = (asked.position + 1) % 5;
    EXPECT_FALSE(judge(asked, draw(drawn)).right()) << describe(asked);
  }
}

TEST(JudgeTest, FindsEveryOtherColourWrong) {
  for (const Scene& asked : all_combinations()) {
    Scene drawn = asked;
    for (drawn.colour = 0; drawn.colour < 8; ++drawn.colour) {
      if (drawn.colour == asked.colour) continue;
      EXPECT_FALSE(judge(asked, draw(drawn)).right())
          << describe(asked) << " in colour " << drawn.colour;
    }
  }
}

TEST(JudgeTest, FindsAnEmptyPictureWrong) {
  const Scene scene;
  Scene other = scene;
  other.colour = other.background;  // the shape cannot be seen
  EXPECT_FALSE(judge(scene, draw(other)).right());
}

TEST(JudgeTest, AllowsColoursToBeOffByFortyAndNoMore) {
  const Scene scene{.shape = 1, .colour = 1, .size = 1, .position = 0, .background = 4};
  const auto shifted = [&](float by) {
    Picture picture = draw(scene);
    for (std::size_t i = 0; i < kPixels; ++i) picture[i] += by;
    return judge(scene, picture);
  };
  EXPECT_TRUE(shifted(40).right());
  EXPECT_FALSE(shifted(41).right());
  EXPECT_NEAR(shifted(41).colour_error, 41, 0.01);
}

}  // namespace
}  // namespace text_to_image
