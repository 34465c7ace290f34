// SPDX-License-Identifier: Apache-2.0
#include <offstage/testing/recording_sink.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace offstage {
namespace {

using testing::RecordingSink;

TEST(RecordingSinkTest, KeepsItsOwnCopyOfEverything) {
  RecordingSink sink;
  {
    std::string borrowed = "text_encoder";
    std::string name = "bound";
    const std::array<EventFigure, 1> figures{{{name, 25}}};
    sink.on_event({.kind = EventKind::kReleaseFailed,
                   .device = c10::Device(c10::DeviceType::CUDA, 1),
                   .component = borrowed,
                   .reason = "forced",
                   .message = "cause",
                   .bytes = 7,
                   .duration = std::chrono::nanoseconds(9),
                   .figures = figures});
    borrowed.assign(borrowed.size(), 'x');
    name.assign(name.size(), 'x');
  }
  ASSERT_EQ(sink.events().size(), 1U);
  const testing::RecordedEvent event = sink.events()[0];
  EXPECT_EQ(event.kind, EventKind::kReleaseFailed);
  EXPECT_EQ(event.device, c10::Device(c10::DeviceType::CUDA, 1));
  EXPECT_EQ(event.component, "text_encoder");
  EXPECT_EQ(event.reason, "forced");
  EXPECT_EQ(event.message, "cause");
  EXPECT_EQ(event.bytes, 7);
  EXPECT_EQ(event.duration.count(), 9);
  EXPECT_EQ(event.figures, (std::map<std::string, std::int64_t>{{"bound", 25}}));
}

TEST(RecordingSinkTest, SelectsByKindInTheOrderOfArrival) {
  RecordingSink sink;
  sink.on_event({.kind = EventKind::kErrorDropped, .reason = "first"});
  sink.on_event({.kind = EventKind::kRetentionDecided});
  sink.on_event({.kind = EventKind::kErrorDropped, .reason = "second"});
  ASSERT_EQ(sink.count(EventKind::kErrorDropped), 2U);
  EXPECT_EQ(sink.events(EventKind::kErrorDropped)[0].reason, "first");
  EXPECT_EQ(sink.events(EventKind::kErrorDropped)[1].reason, "second");
  EXPECT_EQ(sink.count(EventKind::kSlabQuarantined), 0U);
}

TEST(RecordingSinkTest, ForgetsWhenCleared) {
  RecordingSink sink;
  sink.on_event({.kind = EventKind::kErrorDropped});
  sink.clear();
  EXPECT_TRUE(sink.events().empty());
}

TEST(RecordingSinkTest, LosesNothingWhenThreadsReportAtOnce) {
  RecordingSink sink;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 100; ++n) sink.on_event({.kind = EventKind::kErrorDropped});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sink.events().size(), 400U);
}

}  // namespace
}  // namespace offstage
