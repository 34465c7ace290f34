// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/retention/retention_bounds.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace offstage {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(RetentionBoundsTest, AProductIsThatOfDoublesTruncated) {
  EXPECT_EQ(truncated_product(99, 0.25), 24);   // 24.75
  EXPECT_EQ(truncated_product(100, 0.29), 28);  // 28.999999999999996, not 29
  EXPECT_EQ(truncated_product(30, 1.25), 37);   // 37.5
  EXPECT_EQ(truncated_product(0, 0.5), 0);
  EXPECT_EQ(truncated_product(kMaxTotalBytes, 1.0), kMaxTotalBytes);
}

TEST(RetentionBoundsTest, AProductThatDoesNotFitIsTheLargestNumber) {
  EXPECT_EQ(truncated_product(kMax, 1.0), kMax);  // As a double it is 2^63 already.
  EXPECT_EQ(truncated_product(kMax, 1.25), kMax);
  EXPECT_EQ(truncated_product(kMax, std::numeric_limits<double>::max()), kMax);
  EXPECT_EQ(truncated_product(std::int64_t{1} << 62, 2.0), kMax);
  EXPECT_EQ(truncated_product(std::int64_t{1} << 61, 2.0), std::int64_t{1} << 62);
}

TEST(RetentionBoundsTest, AFractionThatIsNoneIsRefusedWithFieldAndValue) {
  const auto error_of = [](double value) -> std::string {
    try {
      require_fraction("some policy", "a_field", value);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(error_of(0.0), "accepted");
  EXPECT_EQ(error_of(1.0), "accepted");
  EXPECT_EQ(error_of(-0.5), "some policy: a_field must be in [0, 1], got -0.5");
  EXPECT_EQ(error_of(std::numeric_limits<double>::quiet_NaN()),
            "some policy: a_field must be in [0, 1], got nan");
}

TEST(RetentionBoundsTest, EqualityKeepsAndTheCacheIsNamedBeforeTheDevice) {
  const auto verdict = [](std::int64_t cached, std::int64_t free) {
    return verdict_within({.allocator = {.reserved = cached}, .device = {.free = free}}, 25, 5);
  };
  EXPECT_FALSE(verdict(25, 5).release);
  EXPECT_EQ(verdict(25, 5).bound, 25);
  EXPECT_EQ(verdict(26, 5).reason, RetentionReason::kCachedOverBound);
  EXPECT_EQ(verdict(25, 4).reason, RetentionReason::kLowFree);
  EXPECT_EQ(verdict(25, 4).bound, 5);
  EXPECT_EQ(verdict(26, 4).reason, RetentionReason::kCachedOverBound);
  EXPECT_EQ(verdict(26, 4).bound, 25);
}

}  // namespace
}  // namespace offstage
