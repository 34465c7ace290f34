// SPDX-License-Identifier: Apache-2.0
// Uses with gaps: what the checker finds, and how much it looks at. Figures are counts, not times.
#include "testing/race_checker.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace offstage::testing::detail {
namespace {

constexpr Address kBegin = 0x100000;
constexpr std::int64_t kRows = 64;

/// Columns of a matrix of `kRows` rows; its width is a test's.
class RaceCheckerStridedTest : public ::testing::Test {
 protected:
  void allocate(std::int64_t width) {
    width_ = width;
    checker_.allocate(a_, kBegin, kBegin + static_cast<Address>(kRows * width));
  }

  Accesses columns(std::int64_t first, std::int64_t count, bool writes) const {
    return {
        {.layout = ByteLayout(kBegin + static_cast<Address>(first), {kRows, count}, {width_, 1}, 1),
         .reads = !writes,
         .writes = writes}};
  }

  std::optional<RaceReport> run(ActorId actor, const Accesses& accesses) {
    const std::string name = accesses.front().writes ? "write" : "read";
    auto found = checker_.check(actor, name, accesses);
    checker_.add(actor, name, accesses);
    return found;
  }
  std::optional<RaceReport> read(ActorId actor, std::int64_t first, std::int64_t count = 1) {
    return run(actor, columns(first, count, false));
  }
  std::optional<RaceReport> write(ActorId actor, std::int64_t first, std::int64_t count = 1) {
    return run(actor, columns(first, count, true));
  }
  std::optional<RaceReport> fill(ActorId actor) { return write(actor, 0, width_); }

  void order(ActorId first, ActorId second) { checker_.wait(second, checker_.snapshot(first)); }

  RaceChecker checker_;
  const ActorId a_ = checker_.add_actor("stream a");
  const ActorId b_ = checker_.add_actor("stream b");
  std::int64_t width_ = 0;
};

TEST_F(RaceCheckerStridedTest, ReadingEveryColumnLooksAtOneWriteEachTime) {
  allocate(2048);
  fill(a_);
  const std::uint64_t before = checker_.comparisons();
  for (std::int64_t column = 0; column < width_; ++column) EXPECT_FALSE(read(a_, column));
  EXPECT_EQ(checker_.comparisons() - before, 2048U);
  EXPECT_EQ(checker_.cell_count(), 1U);
}

TEST_F(RaceCheckerStridedTest,
       WritingEveryColumnAndReadingAllBeforeItLooksAtNothingOfItsOwnStream) {
  allocate(1024);
  fill(a_);
  const std::uint64_t before = checker_.comparisons();
  for (std::int64_t column = 0; column < width_; ++column) {
    EXPECT_FALSE(write(a_, column));
    EXPECT_FALSE(read(a_, 0, column + 1));
  }
  EXPECT_EQ(checker_.comparisons() - before, 2048U) << "the fill, twice for each column";
  EXPECT_EQ(checker_.cell_count(), 1U);
}

TEST_F(RaceCheckerStridedTest, FreshMemoryThatIsWrittenColumnByColumnIsTwoStretchesAtMost) {
  allocate(1024);
  for (std::int64_t column = 0; column < width_ - 1; ++column) {
    EXPECT_FALSE(write(a_, column));
    EXPECT_EQ(checker_.cell_count(), 2U);
  }
  EXPECT_FALSE(write(a_, width_ - 1));
  EXPECT_EQ(checker_.cell_count(), 1U);
}

// Sixteen heads of 256 rows of 16 bytes: a key-value cache that grows by a row of each head.
TEST_F(RaceCheckerStridedTest, AFewRunsAreWrittenExactlyAndCostNoMoreThanMany) {
  constexpr std::int64_t kHeads = 16;
  constexpr std::int64_t kHeadBytes = 256 * 16;
  allocate(kHeads * kHeadBytes / kRows);
  const auto rows = [](std::int64_t first, std::int64_t count, bool writes) -> Accesses {
    return {{.layout = ByteLayout(kBegin + static_cast<Address>(16 * first), {kHeads, 16 * count},
                                  {kHeadBytes, 1}, 1),
             .reads = !writes,
             .writes = writes}};
  };
  for (std::int64_t row = 0; row < 200; ++row) {
    EXPECT_FALSE(run(a_, rows(row, 1, true)));
    const std::uint64_t before = checker_.comparisons();
    EXPECT_FALSE(run(a_, rows(0, row + 1, false)));
    EXPECT_EQ(checker_.comparisons() - before, 31U) << "the allocation, once a stretch";
    EXPECT_EQ(checker_.cell_count(), 32U) << "what is written and what is not, of each head";
  }
  const auto found = checker_.check(a_, "read", rows(200, 1, false));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, RaceKind::kNeverWritten);
}

TEST_F(RaceCheckerStridedTest, OfTwoWritesOfAStreamTheLaterIsTold) {
  allocate(100);
  fill(a_);
  write(a_, 3);
  write(a_, 3, 2);
  EXPECT_EQ(read(b_, 3)->first.number, 4U);
}

TEST_F(RaceCheckerStridedTest, AnotherStreamThatWaitedLooksAtNoColumn) {
  allocate(1024);
  fill(a_);
  for (std::int64_t column = 0; column < width_; ++column) write(a_, column);
  order(a_, b_);
  const std::uint64_t before = checker_.comparisons();
  for (std::int64_t column = 0; column < width_; ++column) EXPECT_FALSE(write(b_, column));
  EXPECT_EQ(checker_.comparisons() - before, 1024U);
}

TEST_F(RaceCheckerStridedTest, AnotherStreamLooksOnlyAtTheColumnsThatItHasNotWaitedFor) {
  allocate(1024);
  fill(a_);
  for (std::int64_t column = 0; column < 1000; ++column) write(a_, column);
  order(a_, b_);
  for (std::int64_t column = 1000; column < 1010; ++column) write(a_, column);
  const std::uint64_t before = checker_.comparisons();
  EXPECT_FALSE(read(b_, 1010));
  EXPECT_EQ(checker_.comparisons() - before, 11U) << "the fill, and ten columns";
  EXPECT_TRUE(read(b_, 1009));
}

// Every 64th write leaves the last; 46 are there after 10,000.
TEST_F(RaceCheckerStridedTest, AColumnThatIsWrittenOverAndOverIsKeptAFewTimes) {
  allocate(100);
  fill(a_);
  order(a_, b_);
  for (int i = 0; i < 10'000; ++i) write(a_, 3);
  const std::uint64_t before = checker_.comparisons();
  EXPECT_FALSE(read(b_, 4));
  EXPECT_EQ(checker_.comparisons() - before, 47U) << "the fill too";
  EXPECT_TRUE(read(b_, 3));
}

TEST_F(RaceCheckerStridedTest, AColumnRacesWithTheSameColumnAndNotWithItsNeighbour) {
  allocate(100);
  fill(a_);
  order(a_, b_);
  EXPECT_FALSE(write(a_, 7, 2));
  EXPECT_FALSE(write(b_, 6));
  EXPECT_FALSE(read(b_, 9));
  const auto found = read(b_, 8);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, RaceKind::kUnordered);
  EXPECT_EQ(found->first.name, "write");
  EXPECT_EQ(found->first.number, 3U);
  EXPECT_EQ(found->begin, kBegin + 8);
}

TEST_F(RaceCheckerStridedTest, AWriteRacesWithAReadOfSomeColumns) {
  allocate(100);
  fill(a_);
  order(a_, b_);
  EXPECT_FALSE(read(b_, 3));
  EXPECT_FALSE(write(a_, 4));
  EXPECT_TRUE(write(a_, 3));
  EXPECT_TRUE(fill(a_));
}

TEST_F(RaceCheckerStridedTest, AWriteOfEverythingStandsForTheColumnsBeforeIt) {
  allocate(100);
  fill(a_);
  order(a_, b_);
  write(b_, 3);
  order(b_, a_);
  EXPECT_FALSE(fill(a_));
  const auto found = read(b_, 3);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first.number, 3U) << "the second fill";
  order(a_, b_);
  EXPECT_FALSE(read(b_, 3));
}

// Rows 0 and 1 are written over; what is left of the column still counts.
TEST_F(RaceCheckerStridedTest, AWriteOfSomeRowsStandsOnlyForThePartOfAColumnInThem) {
  allocate(100);
  fill(a_);
  write(a_, 3);
  const Accesses rows = {{.layout = ByteLayout(kBegin, {200}, {1}, 1), .writes = true}};
  const ActorId c = checker_.add_actor("stream c");
  order(a_, c);
  EXPECT_FALSE(run(c, rows));
  checker_.wait(b_, {});
  const Accesses in_rows = {{.layout = ByteLayout(kBegin + 3, {1}, {1}, 1), .reads = true}};
  const Accesses behind = {{.layout = ByteLayout(kBegin + 203, {1}, {1}, 1), .reads = true}};
  EXPECT_EQ(checker_.check(b_, "read", in_rows)->first.stream, "stream c");
  EXPECT_EQ(checker_.check(b_, "read", behind)->first.stream, "stream a");
}

TEST_F(RaceCheckerStridedTest, AFreeRacesWithAReaderOfAColumn) {
  allocate(100);
  fill(a_);
  order(a_, b_);
  read(b_, 3);
  EXPECT_TRUE(checker_.free(a_, kBegin, kBegin + 6400, {}));
}

}  // namespace
}  // namespace offstage::testing::detail
