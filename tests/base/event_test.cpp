// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/event.hpp>
#include <offstage/base/event_sink.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace offstage {
namespace {

TEST(EventTest, EveryKindHasItsOwnStableSpelling) {
  std::set<std::string_view> spellings;
  for (int kind = 0; kind <= static_cast<int>(EventKind::kErrorDropped); ++kind) {
    spellings.insert(to_string(static_cast<EventKind>(kind)));
  }
  EXPECT_EQ(spellings.size(), static_cast<std::size_t>(EventKind::kErrorDropped) + 1);
  EXPECT_EQ(spellings.count("unknown"), 0U);
  EXPECT_EQ(to_string(EventKind::kComponentLoaded), "component_loaded");
  EXPECT_EQ(to_string(EventKind::kOutOfMemoryRetry), "out_of_memory_retry");
}

TEST(EventSinkTest, DeliversWhatWasSent) {
  class LastEvent final : public EventSink {
   public:
    void on_event(const Event& event) noexcept override { reason = std::string(event.reason); }
    std::string reason;
  };
  LastEvent sink;
  sink.on_event(Event{.kind = EventKind::kRetentionDecided, .reason = "low_free"});
  EXPECT_EQ(sink.reason, "low_free");
}

}  // namespace
}  // namespace offstage
