// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/bytes.hpp>

#include <gtest/gtest.h>

namespace offstage {
namespace {

TEST(BytesTest, AlignUpKeepsMultiplesAndRaisesTheRest) {
  EXPECT_EQ(align_up(0, 512), 0);
  EXPECT_EQ(align_up(1, 512), 512);
  EXPECT_EQ(align_up(512, 512), 512);
  EXPECT_EQ(align_up(513, 512), 1024);
  EXPECT_EQ(align_up((std::int64_t{1} << 40) + 1, 512), (std::int64_t{1} << 40) + 512);
}

TEST(BytesTest, AlignDownKeepsMultiplesAndLowersTheRest) {
  EXPECT_EQ(align_down(0, 512), 0);
  EXPECT_EQ(align_down(511, 512), 0);
  EXPECT_EQ(align_down(1023, 512), 512);
  EXPECT_EQ(align_down(1024, 512), 1024);
}

TEST(BytesTest, PowersOfTwoAreRecognised) {
  EXPECT_TRUE(is_power_of_two(1));
  EXPECT_TRUE(is_power_of_two(512));
  EXPECT_FALSE(is_power_of_two(0));
  EXPECT_FALSE(is_power_of_two(-2));
  EXPECT_FALSE(is_power_of_two(768));
}

}  // namespace
}  // namespace offstage
