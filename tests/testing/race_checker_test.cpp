// SPDX-License-Identifier: Apache-2.0
// The checker alone, without devices: actors 1, 2, ... are streams.
#include "testing/race_checker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <string>

namespace offstage::testing::detail {
namespace {

using ::testing::HasSubstr;

class RaceCheckerTest : public ::testing::Test {
 protected:
  RaceCheckerTest() { checker.allocate(a, 0x1000, 0x2000); }

  static Accesses bytes(Address begin, Address end, bool writes) {
    const auto count = static_cast<std::int64_t>(end - begin);
    return {{.layout = ByteLayout(begin, {count}, {1}, 1), .reads = !writes, .writes = writes}};
  }

  /// Columns [first, last) of a matrix of 64 rows of 64 bytes at 0x1000.
  static Accesses columns(std::int64_t first, std::int64_t last, bool writes) {
    return {
        {.layout = ByteLayout(0x1000 + static_cast<Address>(first), {64, last - first}, {64, 1}, 1),
         .reads = !writes,
         .writes = writes}};
  }

  std::optional<RaceReport> run(ActorId actor, const std::string& name, const Accesses& accesses) {
    auto found = checker.check(actor, name, accesses);
    checker.add(actor, name, accesses);
    return found;
  }
  std::optional<RaceReport> write(ActorId actor, Address begin = 0x1000, Address end = 0x2000) {
    return run(actor, "write", bytes(begin, end, true));
  }
  std::optional<RaceReport> read(ActorId actor, Address begin = 0x1000, Address end = 0x2000) {
    return run(actor, "read", bytes(begin, end, false));
  }

  /// Written by stream a, and the others wait for that.
  void write_for(std::initializer_list<ActorId> others) {
    write(a);
    for (const ActorId other : others) checker.wait(other, checker.snapshot(a));
  }
  /// Side by side: by b the right columns, then by a the left ones.
  void write_halves() {
    EXPECT_FALSE(run(b, "right", columns(32, 64, true)));
    EXPECT_FALSE(run(a, "left", columns(0, 32, true)));
  }

  RaceChecker checker;
  const ActorId a = checker.add_actor("stream a");
  const ActorId b = checker.add_actor("stream b");
  const ActorId c = checker.add_actor("stream c");
};

TEST_F(RaceCheckerTest, OneStreamIsInOrderByItself) {
  EXPECT_FALSE(write(a));
  EXPECT_FALSE(read(a));
  EXPECT_FALSE(write(a));
}

TEST_F(RaceCheckerTest, AReadOnAnotherStreamRacesWithTheWriteUnlessItWaits) {
  write(a);
  const auto found = checker.check(b, "read", bytes(0x1100, 0x1200, false));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, RaceKind::kUnordered);
  EXPECT_EQ(found->first.name, "write");
  EXPECT_EQ(found->first.stream, "stream a");
  EXPECT_EQ(found->first.number, 2U) << "the allocation is the first";
  EXPECT_TRUE(found->first.writes);
  EXPECT_EQ(found->second.stream, "stream b");
  EXPECT_EQ(found->second.number, 1U);
  EXPECT_FALSE(found->second.writes);
  EXPECT_EQ(found->begin, 0x1100U);
  EXPECT_EQ(found->end, 0x1200U);
  EXPECT_EQ(found->text,
            "race: 'read' (stream b, task 1) reads bytes [256, 512) of the 4096 bytes at 0x1000, "
            "which 'write' (stream a, task 2) writes, and nothing orders the two: before 'read', "
            "stream b must wait for an event recorded on stream a after 'write'");
  checker.wait(b, checker.snapshot(a));
  EXPECT_FALSE(read(b));
}

TEST_F(RaceCheckerTest, AWriteRacesWithReadsOfOtherStreams) {
  write_for({b, c});
  EXPECT_FALSE(read(b));
  EXPECT_FALSE(read(c)) << "two reads are no race";
  checker.wait(a, checker.snapshot(b));
  const auto found = write(a);
  ASSERT_TRUE(found) << "c's read is still unordered";
  EXPECT_EQ(found->first.stream, "stream c");
  EXPECT_FALSE(found->first.writes);
}

TEST_F(RaceCheckerTest, AReadIsNotForgottenForThatOfAnotherStream) {
  write_for({b, c});
  read(b);
  read(c);
  checker.wait(a, checker.snapshot(c));
  const auto found = write(a);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first.stream, "stream b");
}

TEST_F(RaceCheckerTest, AnEventOrdersOnlyWhatWasQueuedBeforeItsRecording) {
  write(a, 0x1000, 0x1800);
  const VectorClock early = checker.snapshot(a);
  write(a, 0x1800, 0x2000);
  checker.wait(b, early);
  EXPECT_FALSE(read(b, 0x1000, 0x1800));
  EXPECT_TRUE(read(b, 0x1800, 0x2000));
}

TEST_F(RaceCheckerTest, OrderIsTransitive) {
  write_for({b});
  checker.wait(c, checker.snapshot(b));
  EXPECT_FALSE(write(c));
}

TEST_F(RaceCheckerTest, AWaitOfTheHostOrdersWhatIsQueuedAfterIt) {
  write(a);
  checker.host_wait(checker.snapshot(a));
  EXPECT_FALSE(write(b));
}

TEST_F(RaceCheckerTest, AnAllocationIsAWriteOnItsStream) {
  EXPECT_EQ(write(b)->first.name, "allocation");
}

TEST_F(RaceCheckerTest, NeighboursDoNotRace) {
  checker.wait(b, checker.snapshot(a));
  write(a, 0x1000, 0x1800);
  EXPECT_FALSE(write(b, 0x1800, 0x2000));
  EXPECT_TRUE(write(b, 0x17ff, 0x1801));
}

TEST_F(RaceCheckerTest, MemoryThatNothingWroteIsNotRead) {
  write(a, 0x1000, 0x1800);
  const auto found = read(a, 0x1700, 0x1900);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, RaceKind::kNeverWritten);
  EXPECT_EQ(found->begin, 0x1800U);
  EXPECT_EQ(found->end, 0x1900U);
}

TEST_F(RaceCheckerTest, TheReportEndsWhereWhatWasWrittenBegins) {
  write(a, 0x1800, 0x2000);
  const auto found = read(a, 0x1700, 0x1900);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->begin, 0x1700U);
  EXPECT_EQ(found->end, 0x1800U);
}

TEST_F(RaceCheckerTest, MemoryThatNobodyWatchedCountsAsWritten) {
  checker.assume_written();
  EXPECT_FALSE(read(b));
}

TEST_F(RaceCheckerTest, MemoryThatWasGivenBackIsNotUsedOnAnyStream) {
  write(a);
  EXPECT_FALSE(checker.free(a, 0x1000, 0x2000, {}));
  const auto found = read(a);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, RaceKind::kUseAfterFree);
  EXPECT_EQ(found->first.name, "free");
  EXPECT_THAT(found->text, HasSubstr("use after free: 'read'"));
  checker.allocate(a, 0x1000, 0x2000);
  EXPECT_FALSE(write(a));
}

TEST_F(RaceCheckerTest, AFreeRacesWithAReaderThatWasNotRecorded) {
  write_for({b});
  read(b);
  const auto found = checker.free(a, 0x1000, 0x2000, {});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text, HasSubstr("gives back"));
  EXPECT_THAT(found->text, HasSubstr("record_stream"));
}

TEST_F(RaceCheckerTest, AFreeComesAfterTheStreamsThatWereRecorded) {
  write_for({b});
  read(b);
  EXPECT_FALSE(checker.free(a, 0x1000, 0x2000, checker.snapshot(b)));
}

TEST_F(RaceCheckerTest, ReuseOfABlockOrdersNothingElse) {
  write(a);
  checker.allocate(b, 0x3000, 0x4000);
  EXPECT_FALSE(write(b, 0x3000, 0x4000));
  EXPECT_FALSE(checker.free(a, 0x1000, 0x2000, checker.snapshot(b)));
  checker.allocate(a, 0x1000, 0x2000);
  EXPECT_TRUE(read(a, 0x3000, 0x4000)) << "the free waited for b, stream a did not";
}

TEST_F(RaceCheckerTest, UnknownMemoryIsNotAllocated) {
  const auto found = read(a, 0x8000, 0x8004);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, RaceKind::kNotAllocated);
  write(a);
  checker.forget(0x1000, 0x2000);
  EXPECT_EQ(read(a)->kind, RaceKind::kNotAllocated);
}

TEST_F(RaceCheckerTest, TheHostRacesWithACopyThatIsNotAwaited) {
  checker.watch_host(0x9000, 0xa000);
  EXPECT_FALSE(write(a, 0x9000, 0x9100));
  const auto found = checker.check(kHost, "host read", bytes(0x9000, 0x9001, false));
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text, HasSubstr("the host must first wait for stream a, or for an event "
                                     "recorded on it after 'write'"));
  checker.host_wait(checker.snapshot(a));
  EXPECT_FALSE(checker.check(kHost, "host read", bytes(0x9000, 0x9001, false)));
}

TEST_F(RaceCheckerTest, WhatTheHostWroteIsOrderedBeforeWhatItQueuesNext) {
  checker.watch_host(0x9000, 0xa000);
  EXPECT_FALSE(run(kHost, "host write", bytes(0x9000, 0xa000, true)));
  EXPECT_FALSE(read(a, 0x9000, 0xa000));
}

TEST_F(RaceCheckerTest, TensorsThatOnlyInterleaveDoNotRace) {
  write_for({b, c});
  write_halves();
  const auto found = run(c, "middle", columns(31, 33, false));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first.name, "left");
}

TEST_F(RaceCheckerTest, AnEarlierWriteBehindTheGapsOfALaterOneIsStillSeen) {
  write_for({b});
  write_halves();
  checker.wait(c, checker.snapshot(b));
  const auto found = checker.check(c, "read", bytes(0x1040, 0x1041, false));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first.name, "left");
}

TEST_F(RaceCheckerTest, AWriteWithGapsDoesNotStandForWhatItLeavesOut) {
  write_for({b});
  write_halves();
  checker.wait(c, checker.snapshot(a));
  const auto found = checker.check(c, "read", bytes(0x1020, 0x1021, false));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first.name, "right");
}

TEST_F(RaceCheckerTest, WhatWasWrittenWithGapsCanBeRead) {
  EXPECT_FALSE(run(a, "left", columns(0, 32, true)));
  EXPECT_FALSE(run(a, "left again", columns(0, 32, false)));
}

TEST_F(RaceCheckerTest, AWriteWithGapsWritesNothingBehindItsEnd) {
  EXPECT_FALSE(run(a, "left", columns(0, 32, true)));
  EXPECT_EQ(read(a, 0x1fe0, 0x2000)->kind, RaceKind::kNeverWritten);
}

TEST_F(RaceCheckerTest, WhatLiesInTheGapsOfAWriteDoesNotRaceWithIt) {
  write_for({b});
  EXPECT_FALSE(run(a, "left", columns(0, 32, true)));
  EXPECT_FALSE(write(b, 0x1020, 0x1040));
  EXPECT_FALSE(run(a, "left again", columns(0, 32, true)));
}

TEST_F(RaceCheckerTest, AReportCoversOnlyWhatBothUse) {
  write_for({b, c});
  EXPECT_FALSE(run(b, "right", columns(32, 64, true)));
  EXPECT_FALSE(read(b, 0x1040, 0x1050));
  const auto found = checker.check(c, "read", bytes(0x1040, 0x1070, false));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->begin, 0x1050U);
  EXPECT_EQ(found->end, 0x1070U);
}

TEST_F(RaceCheckerTest, AReportOfAUseWithGapsCoversOnlyWhatBothUse) {
  write_for({b, c});
  EXPECT_FALSE(write(b, 0x1040, 0x1070));
  EXPECT_FALSE(read(b, 0x1040, 0x1050));
  const auto found = checker.check(c, "read", columns(32, 64, false));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->begin, 0x1050U);
  EXPECT_EQ(found->end, 0x1070U);
}

TEST_F(RaceCheckerTest, WhatIsNotWrittenInTheGapsOfAReadIsNoFinding) {
  write(a, 0x1000, 0x1020);
  write(a, 0x1040, 0x1060);
  const Accesses rows = {
      {.layout = ByteLayout(0x1000, {2, 0x20}, {0x40, 1}, 1), .reads = true, .writes = false}};
  EXPECT_FALSE(run(a, "rows", rows));
}

TEST_F(RaceCheckerTest, BetweenTwoBlocksThereIsNothing) {
  checker.allocate(a, 0x3000, 0x4000);
  const auto found = read(b, 0x2000, 0x2001);
  EXPECT_EQ(found->kind, RaceKind::kNotAllocated) << "and its neighbour is another's";
  EXPECT_THAT(found->text, HasSubstr("reads 1 bytes at 0x2000"));
  EXPECT_EQ(read(b, 0x2fff, 0x3000)->kind, RaceKind::kNotAllocated);
}

TEST_F(RaceCheckerTest, AUseAcrossWhatIsBetweenTwoBlocksIsFound) {
  checker.allocate(a, 0x3000, 0x4000);
  write(a, 0x1000, 0x2000);
  write(a, 0x3000, 0x4000);
  const auto found = read(a, 0x1800, 0x3800);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, RaceKind::kNotAllocated);
  EXPECT_EQ(found->begin, 0x2000U);
}

TEST_F(RaceCheckerTest, HostMemoryThatNobodyWatchesIsNoFinding) {
  Accesses unknown = bytes(0x8000, 0x8004, true);
  unknown.front().device = false;
  EXPECT_FALSE(run(a, "copy to the host", unknown));
}

TEST_F(RaceCheckerTest, WhatWasGivenBackInTheGapsOfAUseIsNoFinding) {
  checker.allocate(a, 0x3000, 0x3020);
  checker.allocate(a, 0x3020, 0x3040);
  checker.allocate(a, 0x3040, 0x3060);
  EXPECT_FALSE(checker.free(a, 0x3020, 0x3040, {}));
  const Accesses rows = {
      {.layout = ByteLayout(0x3000, {2, 0x20}, {0x40, 1}, 1), .reads = false, .writes = true}};
  EXPECT_FALSE(run(a, "rows", rows));
}

TEST_F(RaceCheckerTest, AReportNamesTheBlockThatIsThereNow) {
  checker.free(a, 0x1000, 0x2000, {});
  checker.allocate(a, 0x1000, 0x1800);
  EXPECT_THAT(read(a, 0x1000, 0x1004)->text, HasSubstr("bytes [0, 4) of the 2048 bytes at 0x1000"));
  checker.allocate(a, 0x1400, 0x1800);
  EXPECT_THAT(read(a, 0x1000, 0x1004)->text, HasSubstr("reads 4 bytes at 0x1000"));
  checker.forget(0x1000, 0x2000);
  EXPECT_THAT(read(a, 0x1400, 0x1404)->text, HasSubstr("reads 4 bytes at 0x1400"));
  checker.watch_host(0x9000, 0xa000);
  EXPECT_FALSE(write(a, 0x9000, 0x9004));
  EXPECT_THAT(read(b, 0x9000, 0x9004)->text, HasSubstr("of the 4096 bytes at 0x9000"));
}

TEST_F(RaceCheckerTest, AReadOfAPartRacesWithWritesOfThatPartOnly) {
  write_for({b});
  EXPECT_FALSE(read(b, 0x1400, 0x1800));
  EXPECT_FALSE(write(a, 0x1000, 0x1400));
  EXPECT_FALSE(write(a, 0x1800, 0x2000));
  EXPECT_TRUE(write(a, 0x17ff, 0x1800));
}

TEST_F(RaceCheckerTest, TheLastUseOfAStreamIsReported) {
  write_for({b});
  EXPECT_FALSE(run(b, "left", columns(0, 32, false)));
  EXPECT_FALSE(read(b));
  EXPECT_EQ(write(a)->first.name, "read");
}

TEST_F(RaceCheckerTest, AReadOfSomeColumnsIsNotForgottenForThatOfOthers) {
  write_for({b});
  EXPECT_FALSE(run(b, "left", columns(0, 32, false)));
  EXPECT_FALSE(run(b, "right", columns(32, 64, false)));
  const auto found = checker.check(a, "overwrite", bytes(0x1040, 0x1041, true));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first.name, "left");
}

TEST_F(RaceCheckerTest, ResettingForgetsUsesAndKeepsMemory) {
  write_for({b});
  read(b);
  checker.reset();
  EXPECT_FALSE(write(a));
  checker.reset();
  EXPECT_FALSE(read(b));
  EXPECT_EQ(read(b, 0x2000, 0x2001)->kind, RaceKind::kNotAllocated);
}

}  // namespace
}  // namespace offstage::testing::detail
