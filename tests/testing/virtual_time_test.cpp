// SPDX-License-Identifier: Apache-2.0
#include "testing/virtual_time.hpp"

#include <gtest/gtest.h>

namespace offstage::testing::detail {
namespace {

TEST(VirtualTimeTest, AnEngineGivesTheEarliestGapThatIsLongEnough) {
  EngineSchedule engine;
  const auto take = [&](int ready, int cost) {
    return engine.take(Nanoseconds(ready), Nanoseconds(cost)).count();
  };
  EXPECT_EQ(take(10, 5), 10);
  EXPECT_EQ(take(0, 5), 0) << "in front of it";
  EXPECT_EQ(take(0, 8), 15) << "the gap from 5 to 10 is too short";
  EXPECT_EQ(take(4, 5), 5) << "and this fits into it exactly";
  EXPECT_EQ(take(0, 1), 23);
  engine.forget_before(Nanoseconds(30));
  EXPECT_EQ(take(30, 1), 30);
}

TEST(VirtualTimeTest, ATaskThatCostsNothingLeavesTheEngineFree) {
  EngineSchedule engine;
  EXPECT_EQ(engine.take(Nanoseconds(10), Nanoseconds(0)), Nanoseconds(10));
  EXPECT_EQ(engine.take(Nanoseconds(10), Nanoseconds(5)), Nanoseconds(10));
  EXPECT_EQ(engine.take(Nanoseconds(10), Nanoseconds(5)), Nanoseconds(15));
}

TEST(VirtualTimeTest, AResetForgetsTasksEnginesAndSpans) {
  VirtualTime time(1);
  time.add_stream(0, "s");
  time.recording = true;
  time.run(1, "copy", Engine::kH2d, Nanoseconds(50'000));
  time.reset();
  EXPECT_EQ(time.timeline().makespan, Nanoseconds(0));
  EXPECT_TRUE(time.timeline().streams.empty());
  EXPECT_TRUE(time.timeline().spans.empty());
  time.run(1, "copy", Engine::kH2d, Nanoseconds(50'000));
  EXPECT_EQ(time.timeline().makespan, time.costs.enqueue + Nanoseconds(50'000));
}

TEST(VirtualTimeTest, TheMakespanIsTheEndOfTheLastTaskOrTheHostsClock) {
  VirtualTime time(1);
  time.add_stream(0, "s");
  time.run(1, "kernel", Engine::kCompute, Nanoseconds(50'000));
  const auto queued = time.costs.enqueue;
  EXPECT_EQ(time.timeline().makespan, queued + Nanoseconds(50'000));
  time.host_work(Nanoseconds(100'000));
  EXPECT_EQ(time.timeline().makespan, queued + Nanoseconds(100'000));
}

}  // namespace
}  // namespace offstage::testing::detail
