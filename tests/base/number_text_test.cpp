// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/number_text.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace offstage {
namespace {

TEST(NumberTextTest, IsTheShortestThatReadsBackAsTheNumber) {
  EXPECT_EQ(number_text(0.25), "0.25");
  EXPECT_EQ(number_text(1), "1");
  EXPECT_EQ(number_text(1.0000001), "1.0000001");
  EXPECT_EQ(number_text(std::nextafter(1.0, 2.0)), "1.0000000000000002");
  EXPECT_EQ(number_text(-1e-9), "-1e-09");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::min()), "-2.2250738585072014e-308");
}

TEST(NumberTextTest, WhatIsNoNumberHasAName) {
  EXPECT_EQ(number_text(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::infinity()), "-inf");
}

}  // namespace
}  // namespace offstage
