// SPDX-License-Identifier: Apache-2.0
// What a cache counts for the components that are attached to it.
#include "staging_fixture.hpp"

#include <offstage/retention/learned_retention.hpp>
#include <offstage/testing/fake_telemetry.hpp>

#include <limits>

namespace offstage {
namespace {

using testing::Fault;
using testing::FaultPoint;
using testing::FaultWhen;

constexpr std::int64_t kComponent = 3 * 300 * 4;  // Of numbered_tensors(3, 300); not rounded.
constexpr std::int64_t kAdapter = 64 * 4;

class PinnedModuleStagerLedgerTest : public StagingTest {
 protected:
  std::shared_ptr<BoundedAllocatorCache> learning_cache() const {
    return std::make_shared<BoundedAllocatorCache>(device(), figures,
                                                   std::make_shared<LearnedRetention>());
  }
  std::shared_ptr<PinnedModuleStager> stage_one(StagerOptions options = {}) {
    return stage(numbered_tensors(3, 300), std::move(options));
  }
  std::int64_t staged() const { return cache->state().staged_bytes; }
  std::int64_t peak() const { return cache->state().observed_peak; }
  void find_cached(std::int64_t bytes) const {
    figures->set_figures(
        {.allocator = {.reserved = bytes}, .device = {.free = 500, .total = 1000}});
    cache->release_if_needed();
  }

  const std::shared_ptr<testing::FakeTelemetry> figures =
      std::make_shared<testing::FakeTelemetry>();
  const std::shared_ptr<BoundedAllocatorCache> cache = learning_cache();
};

TEST_F(PinnedModuleStagerLedgerTest, TwoModulesOverOneStorageAreCountedOnceAndNotRounded) {
  torch::nn::Linear first(torch::nn::LinearOptions(7, 4).bias(false));
  torch::nn::Linear second(torch::nn::LinearOptions(4, 7).bias(false));
  second->weight.set_data(first->weight.detach().view({7, 4}));
  const auto stager = stage(named_tensors(first, second));
  stager->set_cache(cache);
  EXPECT_EQ(staged(), 112);
  EXPECT_EQ(stager->bytes(), 512) << "rounded to the alignment";
}

TEST_F(PinnedModuleStagerLedgerTest, EmptyTensorsCountNothing) {
  const auto stager = stage({{"empty", at::empty({0, 5})}});
  stager->set_cache(cache);
  EXPECT_EQ(staged(), 0);
}

TEST_F(PinnedModuleStagerLedgerTest, AttachingTheSameCacheAgainChangesNothing) {
  const auto stager = stage_one();
  stager->set_cache(cache);
  find_cached(30);
  stager->set_cache(cache);
  EXPECT_EQ(cache->state(), (RetentionState{.staged_bytes = kComponent, .observed_peak = 30}));
}

TEST_F(PinnedModuleStagerLedgerTest, AnotherCacheTakesTheBytesOver) {
  const auto stager = stage_one();
  stager->set_cache(cache);
  const auto other = learning_cache();
  stager->set_cache(other);
  EXPECT_EQ(staged(), 0);
  EXPECT_EQ(other->state().staged_bytes, kComponent);
  stager->set_cache(nullptr);
  EXPECT_EQ(other->state().staged_bytes, 0);
}

TEST_F(PinnedModuleStagerLedgerTest, ACacheOfAnotherDeviceIsRefusedAndTheEntryStays) {
  const auto stager = stage_one();
  stager->set_cache(cache);
  const auto foreign = std::make_shared<BoundedAllocatorCache>(simulator.device(1), telemetry);
  EXPECT_THROW(stager->set_cache(foreign), InvalidArgument);
  EXPECT_EQ(staged(), kComponent);
  EXPECT_EQ(foreign->state().staged_bytes, 0);
}

TEST_F(PinnedModuleStagerLedgerTest, DetachingOneOfTwoKeepsThePeakAndTheLastResetsIt) {
  const auto first = stage_one();
  auto second = stage_one();
  first->set_cache(cache);
  second->set_cache(cache);
  EXPECT_EQ(staged(), 2 * kComponent);
  find_cached(30);
  first->set_cache(nullptr);
  EXPECT_EQ(cache->state(), (RetentionState{.staged_bytes = kComponent, .observed_peak = 30}));
  find_cached(30);
  EXPECT_EQ(cache->last_decision()->bound, 37);
  second.reset();
  EXPECT_EQ(cache->state(), RetentionState{}) << "a stager that is gone leaks no byte";
}

TEST_F(PinnedModuleStagerLedgerTest, MovingTheComponentChangesNothing) {
  const auto stager = stage_one();
  stager->set_cache(cache);
  stager->load();
  EXPECT_EQ(staged(), kComponent);
  stager->offload();
  EXPECT_EQ(staged(), kComponent);
}

TEST_F(PinnedModuleStagerLedgerTest, AdaptersCountWhileTheyAreThere) {
  const auto stager = stage_one();
  stager->set_cache(cache);
  find_cached(30);
  stager->add("style", {{"lora", at::ones({64})}});
  EXPECT_EQ(staged(), kComponent + kAdapter);
  stager->load();
  stager->add("more", {{"lora.up", at::ones({64})}});
  EXPECT_EQ(staged(), kComponent + 2 * kAdapter);
  stager->remove("style");
  stager->offload();
  stager->remove("more");
  EXPECT_EQ(cache->state().staged_bytes, kComponent);
}

TEST_F(PinnedModuleStagerLedgerTest, ACacheThatIsAttachedLateCountsTheAdaptersToo) {
  const auto stager = stage_one();
  stager->add("style", {{"lora", at::ones({64})}});
  stager->set_cache(cache);
  EXPECT_EQ(staged(), kComponent + kAdapter);
}

TEST_F(PinnedModuleStagerLedgerTest, AnAdapterThatIsRefusedDoesNotCount) {
  const auto stager = stage_one();
  stager->set_cache(cache);
  EXPECT_THROW(stager->add("style", {{"t1", at::ones({64})}}), InvalidArgument);
  EXPECT_THROW(stager->add("style", {{"lora", at::ones({64}).to_sparse()}}), StagingError);
  EXPECT_THROW(stager->remove("style"), InvalidArgument);
  EXPECT_EQ(staged(), kComponent);
}

TEST_F(PinnedModuleStagerLedgerTest, AnAdapterThatTheLedgerCannotHoldIsRefusedBeforeItIsAdopted) {
  const auto stager = stage_one();
  stager->set_cache(cache);
  const StagedBytesToken others =
      cache->attach(std::numeric_limits<std::int64_t>::max() - kComponent);
  EXPECT_THROW(stager->add("style", {{"lora", at::ones({64})}}), InvalidArgument);
  EXPECT_EQ(stager->tensor_count(), 3U);
  EXPECT_EQ(staged(), std::numeric_limits<std::int64_t>::max());
}

TEST_F(PinnedModuleStagerLedgerTest, AnAdapterWhoseMemoryCannotBePinnedDoesNotCount) {
  const auto stager = stage_one({.strict_pinning = true});
  stager->set_cache(cache);
  simulator.faults().fail(FaultPoint::kRegister, FaultWhen::from(1), Fault::kAccelerator);
  EXPECT_THROW(stager->add("style", {{"lora", at::ones({64})}}), HostMemoryError);
  EXPECT_EQ(stager->tensor_count(), 3U);
  EXPECT_EQ(staged(), kComponent);
}

TEST_F(PinnedModuleStagerLedgerTest, AfterAnyFaultOfAChangeTheLedgerHoldsWhatIsThere) {
  for (const FaultPoint point : {FaultPoint::kAllocate, FaultPoint::kCopy, FaultPoint::kRecord,
                                 FaultPoint::kWait, FaultPoint::kSynchronize}) {
    for (int n = 1; n <= 3; ++n) {
      simulator.reset();
      const auto stager = stage_one();
      stager->set_cache(cache);
      stager->load();
      const auto expect_right_ledger = [&](const char* operation) {
        const bool has_adapter = stager->tensor_count() == 4;
        EXPECT_EQ(staged(), kComponent + (has_adapter ? kAdapter : 0))
            << operation << ", point " << static_cast<int>(point) << ", from call " << n;
      };
      simulator.faults().fail(point, FaultWhen::from(n), Fault::kAccelerator);
      try {
        stager->add("style", {{"lora", at::ones({64})}});
      } catch (...) {
      }
      expect_right_ledger("add");
      try {
        stager->remove("style");
      } catch (...) {
      }
      expect_right_ledger("remove");
      simulator.faults().clear();
    }
  }
}

}  // namespace
}  // namespace offstage
