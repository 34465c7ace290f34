// SPDX-License-Identifier: Apache-2.0
// Backends that throw whatever they like, and policies of the user's own.
#include "cache_fixture.hpp"

#include <c10/util/Exception.h>

#include <functional>
#include <new>
#include <stdexcept>
#include <string>

namespace offstage {
namespace {

/// Throws what it is told to, from a query or from a release.
class ThrowingTelemetry final : public TelemetryBackend {
 public:
  std::string_view name() const noexcept override { return "throwing"; }
  AllocatorStats allocator_stats(c10::Device /*device*/) override {
    if (query) query();
    return {.reserved = 30};
  }
  DeviceMemory device_memory(c10::Device /*device*/) override { return {.free = 50, .total = 100}; }
  void release_cached(c10::Device /*device*/) override {
    ++releases;
    if (release) release();
  }
  std::function<void()> query;
  std::function<void()> release;
  int releases = 0;
};

struct Thrown {
  const char* name;
  void (*make)();
  const char* text;
};

const Thrown kThrown[] = {
    {"AnInt", [] { throw 42; }, "an exception that is not a std::exception"},
    {"BadAlloc", [] { throw std::bad_alloc(); }, "std::bad_alloc"},
    {"ALibTorchError", [] { TORCH_CHECK(false, "the driver is gone"); }, "the driver is gone"},
    {"AString", [] { throw std::string("text"); }, "text"},
    {"ANullPointer", [] { throw static_cast<const char*>(nullptr); }, ""},
};

class AnythingThrownTest : public CacheTest, public ::testing::WithParamInterface<Thrown> {
 protected:
  const std::shared_ptr<ThrowingTelemetry> throwing = std::make_shared<ThrowingTelemetry>();
  BoundedAllocatorCache cache{kCacheDevice, throwing, std::make_shared<FixedRetention>(), sink};
};

TEST_P(AnythingThrownTest, ByAQueryReleasesAndWarnsWithCauseAndCost) {
  throwing->query = GetParam().make;
  EXPECT_TRUE(cache.release_if_needed());
  EXPECT_EQ(cache.last_decision()->reason, RetentionReason::kTelemetryFailed);
  ASSERT_EQ(sink->count(EventKind::kTelemetryFailed), 1U);
  EXPECT_EQ(
      sink->events(EventKind::kTelemetryFailed)[0].message,
      std::string(GetParam().text) + "; every decision will release the cache until it is cured");
}

TEST_P(AnythingThrownTest, ByAReleaseIsRecordedAndLeaves) {
  throwing->release = GetParam().make;
  EXPECT_ANY_THROW(cache.release_if_needed());
  EXPECT_FALSE(cache.release_forced());
  EXPECT_EQ(cache.counters().release_failures, 2);
  ASSERT_EQ(sink->count(EventKind::kReleaseFailed), 2U);
  EXPECT_EQ(sink->events(EventKind::kReleaseFailed)[0].message, GetParam().text);
  EXPECT_FALSE(cache.decisions()[0].released);
}

TEST_P(AnythingThrownTest, ByQueryAndReleaseIsTheErrorOfTheRelease) {
  throwing->query = [] { throw 1; };
  throwing->release = GetParam().make;
  EXPECT_ANY_THROW(cache.release_if_needed());
  EXPECT_EQ(cache.last_decision()->reason, RetentionReason::kTelemetryFailed);
  ASSERT_EQ(sink->count(EventKind::kReleaseFailed), 1U);
  EXPECT_EQ(sink->events(EventKind::kReleaseFailed)[0].message, GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(All, AnythingThrownTest, ::testing::ValuesIn(kThrown),
                         [](const auto& instance) { return instance.param.name; });

/// Keeps twelve bytes; throws at thirteen, and has no peak for fourteen.
class KeepTwelve final : public RetentionPolicy {
 public:
  std::string_view name() const noexcept override { return "keep_twelve"; }
  RetentionVerdict decide(const MemoryFigures& seen, const RetentionState& state) const override {
    if (seen.cached() == 13) throw std::logic_error("unlucky");
    const bool over = seen.cached() > 12 + state.staged_bytes;
    return {.release = over,
            .reason = over ? RetentionReason::kCachedOverBound : RetentionReason::kWithinBounds,
            .bound = 12 + state.staged_bytes};
  }
  std::int64_t next_peak(const MemoryFigures& seen, const RetentionState& state) const override {
    if (seen.cached() == 14) throw 14;
    return seen.cached() == 15 ? -1 : RetentionPolicy::next_peak(seen, state);
  }
};

class OwnPolicyTest : public CacheTest {
 protected:
  const std::unique_ptr<BoundedAllocatorCache> cache = cache_of(std::make_shared<KeepTwelve>());
};

TEST_F(OwnPolicyTest, DecidesFromFiguresAndState) {
  EXPECT_FALSE(releases(*cache, 12));
  EXPECT_TRUE(releases(*cache, 16));
  EXPECT_EQ(cache->last_decision()->bound, 12);
  const StagedBytesToken token = cache->attach(4);
  EXPECT_FALSE(releases(*cache, 16));
  EXPECT_EQ(cache->last_decision()->bound, 16);
}

TEST_F(OwnPolicyTest, AnErrorOfTheRuleReleasesAndRecordsNothing) {
  find(13);
  EXPECT_THROW(cache->release_if_needed(), std::logic_error);
  EXPECT_EQ(release_calls(), 0);
  EXPECT_FALSE(cache->last_decision().has_value());
  EXPECT_FALSE(releases(*cache, 12)) << "the cache can be used on";
}

TEST_F(OwnPolicyTest, AnErrorOfThePeakReleasesNothingAndKeepsTheOldOne) {
  EXPECT_TRUE(releases(*cache, 20));
  find(14);
  EXPECT_THROW(cache->release_if_needed(), int);
  EXPECT_EQ(release_calls(), 1);
  EXPECT_EQ(cache->state().observed_peak, 20);
  EXPECT_TRUE(cache->release_forced());
}

TEST_F(OwnPolicyTest, AReasonThatThereIsNotReleasesAndRecordsNothing) {
  class Confused final : public RetentionPolicy {
   public:
    explicit Confused(bool needs_figures) : needs_figures_(needs_figures) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "confused"; }
    [[nodiscard]] bool needs_figures() const noexcept override { return needs_figures_; }
    [[nodiscard]] RetentionVerdict decide(const MemoryFigures& /*figures*/,
                                          const RetentionState& /*state*/) const override {
      return {.release = true, .reason = static_cast<RetentionReason>(8), .bound = 0};
    }

   private:
    bool needs_figures_;
  };
  find(10);
  for (const bool needs_figures : {true, false}) {
    const auto confused = cache_of(std::make_shared<Confused>(needs_figures));
    try {
      confused->release_if_needed();
      FAIL() << "the reason was counted somewhere";
    } catch (const InvalidArgument& error) {
      EXPECT_STREQ(error.what(),
                   "bounded allocator cache: policy 'confused' gave the unknown reason 8");
    }
    EXPECT_FALSE(confused->last_decision().has_value());
    EXPECT_EQ(confused->state().observed_peak, 0);
  }
  EXPECT_EQ(release_calls(), 0);
}

TEST_F(OwnPolicyTest, ANegativePeakIsNone) {
  (void)releases(*cache, 15);
  EXPECT_EQ(cache->state().observed_peak, 0);
}

}  // namespace
}  // namespace offstage
