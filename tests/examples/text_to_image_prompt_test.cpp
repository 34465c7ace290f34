// SPDX-License-Identifier: Apache-2.0
#include "prompt.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

namespace text_to_image {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string named(const Scene& scene) {
  return describe(scene);
}

std::string refusal(const std::string& phrase) {
  try {
    static_cast<void>(parse_prompt(phrase));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(PromptTest, ReadsEverySlot) {
  EXPECT_EQ(named(parse_prompt("a small green star on a white background at the top left")),
            "a small green star on a white background at the top left");
}

TEST(PromptTest, ReadsBackTheDescriptionOfEveryScene) {
  for (const Scene& scene : all_scenes()) EXPECT_EQ(parse_prompt(describe(scene)), scene);
}

TEST(PromptTest, FillsInLargeAndCenterWhenTheyAreNotSaid) {
  EXPECT_EQ(named(parse_prompt("a red circle on a blue background")),
            "a large red circle on a blue background in the center");
}

TEST(PromptTest, FillsInTheColoursThatAreNotSaid) {
  EXPECT_EQ(named(parse_prompt("circle")),
            "a large red circle on a white background in the center");
  EXPECT_EQ(named(parse_prompt("a white cross")),
            "a large white cross on a black background in the center");
  EXPECT_EQ(named(parse_prompt("a cross on a red background")),
            "a large blue cross on a red background in the center");
  EXPECT_EQ(named(parse_prompt("a cross on a green background")),
            "a large red cross on a green background in the center");
}

TEST(PromptTest, IgnoresCaseAndPunctuation) {
  EXPECT_EQ(parse_prompt("A RED Circle, on blue; bottom-right!"),
            parse_prompt("a red circle on a blue background at the bottom right"));
}

TEST(PromptTest, NamesAnUnknownWordAndTheKnownOnesInOneLine) {
  EXPECT_THAT(refusal("a red hexagon"),
              AllOf(HasSubstr("unknown word 'hexagon'"), HasSubstr("circle square triangle"),
                    HasSubstr("small large"), HasSubstr("purple"), HasSubstr("center top"),
                    Not(HasSubstr("\n"))));
}

TEST(PromptTest, RefusesWhatIsIncompleteOrSaidTwice) {
  EXPECT_THAT(refusal(""), HasSubstr("names no shape"));
  EXPECT_THAT(refusal("a red one"), HasSubstr("unknown word 'one'"));
  EXPECT_THAT(refusal("a red circle square"), HasSubstr("two shapes"));
  EXPECT_THAT(refusal("a small large circle"), HasSubstr("two sizes"));
  EXPECT_THAT(refusal("a circle at the top"), HasSubstr("half a position"));
  EXPECT_THAT(refusal("a circle at the top bottom left"), HasSubstr("two positions"));
  EXPECT_THAT(refusal("a circle in the center top left"), HasSubstr("two positions"));
  EXPECT_THAT(refusal("a red blue green circle"), HasSubstr("two backgrounds"));
  EXPECT_THAT(refusal("a circle on a background"), HasSubstr("no colour before 'background'"));
  EXPECT_THAT(refusal("a red circle on a red background"), HasSubstr("one colour"));
}

TEST(PromptTest, GivesEverySceneItsOwnFiveTokens) {
  std::set<TokenIds> seen;
  for (const Scene& scene : all_scenes()) {
    const TokenIds ids = tokenize(scene);
    for (const std::int64_t id : ids) {
      EXPECT_GE(id, 0);
      EXPECT_LT(id, static_cast<std::int64_t>(vocabulary().size()));
    }
    EXPECT_TRUE(seen.insert(ids).second);
  }
}

TEST(PromptTest, TakesTheTokensFromTheirPlacesInTheVocabulary) {
  const TokenIds ids = tokenize(parse_prompt("a small red circle on a blue background"));
  const char* const words[] = {"small", "red", "circle", "blue", "center"};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(vocabulary()[static_cast<std::size_t>(ids[i])], words[i]);
  }
}

}  // namespace
}  // namespace text_to_image
