// SPDX-License-Identifier: Apache-2.0
// The checker alone, without devices: actors 1, 2, ... are streams.
#include "testing/race_checker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  write(a);
  const VectorClock written = checker.snapshot(a);
  checker.wait(b, written);
  checker.wait(c, written);
  EXPECT_FALSE(read(b));
  EXPECT_FALSE(read(c)) << "two reads are no race";
  checker.wait(a, checker.snapshot(b));
  const auto found = write(a);
  ASSERT_TRUE(found) << "c's read is still unordered";
  EXPECT_EQ(found->first.stream, "stream c");
  EXPECT_FALSE(found->first.writes);
}

TEST_F(RaceCheckerTest, AReadIsNotForgottenForThatOfAnotherStream) {
  write(a);
  const VectorClock written = checker.snapshot(a);
  checker.wait(b, written);
  checker.wait(c, written);
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
  write(a);
  checker.wait(b, checker.snapshot(a));
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
  write(a);
  checker.wait(b, checker.snapshot(a));
  read(b);
  const auto found = checker.free(a, 0x1000, 0x2000, {});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text, HasSubstr("gives back"));
  EXPECT_THAT(found->text, HasSubstr("record_stream"));
}

TEST_F(RaceCheckerTest, AFreeComesAfterTheStreamsThatWereRecorded) {
  write(a);
  checker.wait(b, checker.snapshot(a));
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
  write(a);
  const VectorClock written = checker.snapshot(a);
  checker.wait(b, written);
  checker.wait(c, written);
  EXPECT_FALSE(run(a, "left", columns(0, 32, true)));
  EXPECT_FALSE(run(b, "right", columns(32, 64, true)));
  const auto found = run(c, "middle", columns(31, 33, false));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first.name, "left");
}

TEST_F(RaceCheckerTest, AnEarlierWriteBehindTheGapsOfALaterOneIsStillSeen) {
  write(a);
  checker.wait(b, checker.snapshot(a));
  EXPECT_FALSE(run(b, "right", columns(32, 64, true)));
  checker.wait(c, checker.snapshot(b));
  EXPECT_FALSE(run(a, "left", columns(0, 32, true)));
  const auto found = run(c, "left again", columns(0, 1, false));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first.name, "left");
}

TEST_F(RaceCheckerTest, AWriteWithGapsDoesNotStandForWhatItLeavesOut) {
  write(a);
  checker.wait(b, checker.snapshot(a));
  EXPECT_FALSE(run(b, "right", columns(32, 64, true)));
  EXPECT_FALSE(run(a, "left", columns(0, 32, true)));
  checker.wait(c, checker.snapshot(a));
  const auto found = checker.check(c, "read", columns(32, 33, false));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first.name, "right");
}

TEST_F(RaceCheckerTest, WhatWasWrittenWithGapsCanBeRead) {
  EXPECT_FALSE(run(a, "left", columns(0, 32, true)));
  EXPECT_FALSE(run(a, "left again", columns(0, 32, false)));
}

TEST_F(RaceCheckerTest, BetweenTwoBlocksThereIsNothing) {
  checker.allocate(a, 0x3000, 0x4000);
  EXPECT_EQ(read(a, 0x2000, 0x2001)->kind, RaceKind::kNotAllocated);
  EXPECT_EQ(read(a, 0x2fff, 0x3000)->kind, RaceKind::kNotAllocated);
}

TEST_F(RaceCheckerTest, AReadOfSomeColumnsIsNotForgottenForThatOfOthers) {
  write(a);
  checker.wait(b, checker.snapshot(a));
  EXPECT_FALSE(run(b, "left", columns(0, 32, false)));
  EXPECT_FALSE(run(b, "right", columns(32, 64, false)));
  const auto found = checker.check(a, "overwrite", columns(0, 1, true));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first.name, "left");
}

TEST_F(RaceCheckerTest, ResettingForgetsUsesAndKeepsMemory) {
  write(a);
  checker.reset();
  EXPECT_FALSE(read(b));
  EXPECT_EQ(read(b, 0x2000, 0x2001)->kind, RaceKind::kNotAllocated);
}

}  // namespace
}  // namespace offstage::testing::detail
