// SPDX-License-Identifier: Apache-2.0
#include "evaluation.hpp"
#include "scene.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace text_to_image {
namespace {

auto key(const Scene& scene) {
  return std::tuple(scene.shape, scene.colour, scene.size, scene.position);
}

TEST(SceneTest, Has480CombinationsOnSevenBackgroundsEach) {
  std::set<std::tuple<int, int, int, int>> combinations;
  for (const Scene& scene : all_scenes()) {
    combinations.insert(key(scene));
    EXPECT_NE(scene.colour, scene.background);
  }
  EXPECT_EQ(all_scenes().size(), 480U * 7U);
  EXPECT_EQ(combinations.size(), 480U);
}

TEST(SceneTest, ListsEveryCombinationOnceWithEveryBackgroundInUse) {
  std::set<std::tuple<int, int, int, int>> combinations;
  std::set<int> backgrounds;
  for (const Scene& scene : all_combinations()) {
    combinations.insert(key(scene));
    backgrounds.insert(scene.background);
    EXPECT_NE(scene.colour, scene.background);
  }
  EXPECT_EQ(all_combinations().size(), 480U);
  EXPECT_EQ(combinations.size(), 480U);
  EXPECT_EQ(backgrounds.size(), kColours.size());
}

TEST(SceneTest, HoldsOut96CombinationsSpreadOverEveryShapeColourSizeAndPosition) {
  std::map<int, int> shapes;
  std::map<int, int> colours;
  std::map<int, int> sizes;
  std::map<int, int> positions;
  int held_out = 0;
  for (const Scene& scene : all_combinations()) {
    if (!is_held_out(scene)) continue;
    ++held_out;
    ++shapes[scene.shape];
    ++colours[scene.colour];
    ++sizes[scene.size];
    ++positions[scene.position];
  }
  EXPECT_EQ(held_out, 96);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(shapes[i], 16);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(colours[i], 12);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(sizes[i], 48);
  for (int i = 0; i < 5; ++i) {
    EXPECT_GE(positions[i], 18);
    EXPECT_LE(positions[i], 20);
  }
}

TEST(SceneTest, HoldsOutWhateverTheBackground) {
  for (Scene scene : all_scenes()) {
    const bool held_out = is_held_out(scene);
    scene.background = 0;
    EXPECT_EQ(is_held_out(scene), held_out);
  }
}

TEST(SceneTest, EvaluatesOn96HeldOutAnd96SeenCombinations) {
  EXPECT_EQ(held_out_scenes().size(), 96U);
  EXPECT_EQ(seen_scenes().size(), 96U);
  EXPECT_TRUE(std::ranges::all_of(held_out_scenes(), is_held_out));
  EXPECT_TRUE(std::ranges::none_of(seen_scenes(), is_held_out));
}

TEST(SceneTest, DrawsTheShapeInItsColourOnItsBackground) {
  const Scene scene{.shape = 0, .colour = 0, .size = 1, .position = 0, .background = 2};
  const Picture picture = draw(scene);
  const std::size_t middle = 16 * kSide + 16;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    EXPECT_EQ(picture[channel * kPixels + middle], static_cast<float>(kColours[0].rgb[channel]));
    EXPECT_EQ(picture[channel * kPixels], static_cast<float>(kColours[2].rgb[channel]));
  }
}

TEST(SceneTest, DrawsACircleOfTheRightArea) {
  const Mask mask = draw_mask(/*shape=*/0, /*size=*/0, /*position=*/0);
  EXPECT_NEAR(std::accumulate(mask.begin(), mask.end(), 0.0F), 153.9F, 1.0F);  // pi * 7 * 7
}

TEST(SceneTest, KeepsEveryShapeInsideThePicture) {
  for (int shape = 0; shape < 6; ++shape) {
    for (int position = 1; position < 5; ++position) {
      const auto in_corner = draw_mask(shape, 1, position);
      const auto in_middle = draw_mask(shape, 1, 0);
      EXPECT_NEAR(std::accumulate(in_corner.begin(), in_corner.end(), 0.0F),
                  std::accumulate(in_middle.begin(), in_middle.end(), 0.0F), 0.5F)
          << kShapes[static_cast<std::size_t>(shape)];
    }
  }
}

}  // namespace
}  // namespace text_to_image
