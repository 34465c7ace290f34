// SPDX-License-Identifier: Apache-2.0
#include "testing/access.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <vector>

namespace offstage::testing::detail {
namespace {

std::set<Address> bytes_of(Address begin, const std::vector<std::int64_t>& sizes,
                           const std::vector<std::int64_t>& strides, std::int64_t item) {
  std::set<Address> starts = {begin};
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    std::set<Address> next;
    for (const Address start : starts) {
      for (std::int64_t i = 0; i < sizes[d]; ++i) {
        next.insert(start + static_cast<Address>(i * strides[d] * item));
      }
    }
    starts = std::move(next);
  }
  std::set<Address> bytes;
  for (const Address start : starts) {
    for (std::int64_t i = 0; i < item; ++i) bytes.insert(start + static_cast<Address>(i));
  }
  return bytes;
}

TEST(AccessTest, DenseTensorsAreOneRunWhateverTheOrderOfTheirDimensions) {
  const ByteLayout matrix(100, {4, 8}, {8, 1}, 4);
  EXPECT_TRUE(matrix.dense());
  EXPECT_EQ(matrix.begin(), 100U);
  EXPECT_EQ(matrix.end(), 228U);
  EXPECT_TRUE(ByteLayout(100, {8, 4}, {1, 8}, 4).dense());
  EXPECT_TRUE(ByteLayout(100, {2, 1000}, {1, 0}, 4).dense()) << "expanded";
  EXPECT_TRUE(ByteLayout(100, {4, 4}, {2, 1}, 4).dense()) << "overlapping rows";
  EXPECT_TRUE(ByteLayout(100, {}, {}, 8).dense()) << "a scalar";
}

// The parts of one tensor: the same strides, and whatever sizes and places.
TEST(AccessTest, PartsOfOneTensorOverlapWhenTheyHaveAByteInCommon) {
  std::mt19937 random(3);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const std::vector<std::int64_t> strides = {60, 10, 1};
  const auto part = [&](std::vector<std::int64_t>& sizes) {
    sizes = {pick(2, 4), pick(2, 5), pick(1, 9)};
    return static_cast<Address>(1000 + 60 * pick(0, 3) + 10 * pick(0, 5) + pick(0, 9));
  };
  int overlapping = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::int64_t> left_sizes;
    std::vector<std::int64_t> right_sizes;
    const Address left_begin = part(left_sizes);
    const Address right_begin = part(right_sizes);
    const ByteLayout left(left_begin, left_sizes, strides, 1);
    const ByteLayout right(right_begin, right_sizes, strides, 1);
    const std::set<Address> left_bytes = bytes_of(left_begin, left_sizes, strides, 1);
    const std::set<Address> right_bytes = bytes_of(right_begin, right_sizes, strides, 1);
    std::set<Address> common;
    std::set_intersection(left_bytes.begin(), left_bytes.end(), right_bytes.begin(),
                          right_bytes.end(), std::inserter(common, common.end()));
    ASSERT_EQ(left.overlaps(right), !common.empty()) << i;
    ASSERT_EQ(right.overlaps(left), !common.empty()) << i;
    const Address middle = 1150;
    ASSERT_EQ(left.overlaps(right, 1000, middle), !common.empty() && *common.begin() < middle) << i;
    overlapping += common.empty() ? 0 : 1;
  }
  EXPECT_GT(overlapping, 200);
  EXPECT_LT(overlapping, 1800);
}

TEST(AccessTest, EqualLayoutsHaveEqualHashes) {
  EXPECT_EQ(ByteLayout(100, {4, 8}, {16, 1}, 4).hash(), ByteLayout(100, {4, 8}, {16, 1}, 4).hash());
  EXPECT_NE(ByteLayout(100, {4, 8}, {16, 1}, 4).hash(), ByteLayout(104, {4, 8}, {16, 1}, 4).hash());
}

TEST(AccessTest, ATensorWithoutElementsIsEmpty) {
  const ByteLayout none(100, {4, 0}, {1, 1}, 4);
  EXPECT_TRUE(none.empty());
  EXPECT_FALSE(none.touches(0, 1000));
}

TEST(AccessTest, ColumnsAreRuns) {
  const ByteLayout columns(100, {3, 2}, {10, 1}, 4);
  EXPECT_FALSE(columns.dense());
  EXPECT_EQ(columns.run_count(), 3);
  EXPECT_TRUE(columns.touches(107, 108));
  EXPECT_FALSE(columns.touches(108, 140));
  EXPECT_TRUE(columns.touches(108, 141));
  EXPECT_FALSE(columns.touches(188, 1000));
}

// Random layouts, beside the sets of their bytes.
TEST(AccessTest, TouchesAndOverlapsAreThoseOfTheSetsOfBytes) {
  std::mt19937 random(11);  // NOLINT: the same every time
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto make = [&](std::set<Address>& bytes) {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    for (std::int64_t d = pick(0, 3); d > 0; --d) {
      sizes.push_back(pick(1, 4));
      strides.push_back(pick(0, 9));
    }
    const auto begin = static_cast<Address>(pick(0, 20));
    const std::int64_t item = pick(1, 3);
    bytes = bytes_of(begin, sizes, strides, item);
    return ByteLayout(begin, sizes, strides, item);
  };
  for (int round = 0; round < 3000; ++round) {
    std::set<Address> first;
    std::set<Address> second;
    const ByteLayout a = make(first);
    const ByteLayout b = make(second);
    ASSERT_EQ(a.begin(), *first.begin());
    ASSERT_EQ(a.end(), *first.rbegin() + 1);
    const auto low = static_cast<Address>(pick(0, 60));
    const auto high = low + static_cast<Address>(pick(0, 12));
    const auto reached = first.lower_bound(low);
    ASSERT_EQ(a.touches(low, high), reached != first.end() && *reached < high);
    std::vector<Address> common;
    std::ranges::set_intersection(first, second, std::back_inserter(common));
    ASSERT_EQ(a.overlaps(b), !common.empty()) << "round " << round;
    std::set<Address> runs;
    a.any_run([&](Address begin, Address end) {
      for (Address byte = begin; byte < end; ++byte) runs.insert(byte);
      return false;
    });
    ASSERT_EQ(runs, first);
  }
}

}  // namespace
}  // namespace offstage::testing::detail
