// SPDX-License-Identifier: Apache-2.0
// What a stager does when something fails: nothing is lost, nothing is half moved.
#include "../base/cancelled_thread.hpp"
#include "staging_fixture.hpp"

#include <offstage/base/error.hpp>

#include <c10/core/StreamGuard.h>

#include <sys/wait.h>
#include <unistd.h>

namespace offstage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Telemetry whose releases are counted, and fail on request.
class CountingTelemetry final : public TelemetryBackend {
 public:
  explicit CountingTelemetry(std::shared_ptr<TelemetryBackend> real) : real_(std::move(real)) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "counting"; }
  [[nodiscard]] AllocatorStats allocator_stats(c10::Device device) override {
    return real_->allocator_stats(device);
  }
  [[nodiscard]] DeviceMemory device_memory(c10::Device device) override {
    return real_->device_memory(device);
  }
  void release_cached(c10::Device device) override {
    ++releases;
    if (std::current_exception() != nullptr) ++releases_in_handlers;
    if (fail_release) TORCH_CHECK(false, "release failed");
    if (cancellable) cancellation_point();
    real_->release_cached(device);
  }
  int releases = 0;
  int releases_in_handlers = 0;  ///< While an exception, which can hold memory, is alive.
  bool fail_release = false;
  bool cancellable = false;

 private:
  const std::shared_ptr<TelemetryBackend> real_;
};

class PinnedModuleStagerFailureTest : public StagingTest {
 protected:
  PinnedModuleStagerFailureTest() { telemetry = counting; }

  std::shared_ptr<CountingTelemetry> counting = std::make_shared<CountingTelemetry>(telemetry);
  std::shared_ptr<DeviceContext> counted_context() {
    return DeviceContext::create(
        device(), {.host_memory = simulator.host_memory(), .telemetry = counting, .sink = sink});
  }
};

// case C31: 60 + 50 in a capacity of 120, 45 of which another stream holds cached. The simulator,
// as real allocators do, gives cached memory back by itself before it gives up.
TEST_F(PinnedModuleStagerFailureTest, MemoryThatOthersHoldCachedIsNoReasonToFail) {
  context = counted_context();
  simulator.set_capacity(0, 120 * kMiB);
  const std::vector<NamedTensor> tensors = {{"a", at::full({60 * kMiB / 4}, 0.0F)},
                                            {"b", at::full({50 * kMiB / 4}, 1.0F)}};
  const auto stager = stage(tensors, {.chunk_bytes_max = kMiB});
  static_cast<void>(at::empty({45 * kMiB}, at::TensorOptions().dtype(at::kByte).device(device())));
  ASSERT_EQ(simulator.memory().reserved, 46 * kMiB);
  stager->load();
  expect_numbered(tensors);
  EXPECT_EQ(simulator.memory().allocated, 110 * kMiB);
  EXPECT_EQ(stager->counters().out_of_memory_retries, 0);
}

// case C31: at the retry nothing of the first attempt is alive.
TEST_F(PinnedModuleStagerFailureTest, ARetryThatFailsIsTheLastOneAndLeavesNothingBehind) {
  context = counted_context();
  simulator.set_capacity(0, 100 * kMiB);
  const std::vector<NamedTensor> tensors = {{"a", at::full({60 * kMiB / 4}, 0.0F)},
                                            {"b", at::full({50 * kMiB / 4}, 1.0F)}};
  const auto stager = stage(tensors, {.chunk_bytes_max = kMiB});
  const auto before = counters();
  EXPECT_THROW(stager->load(), c10::OutOfMemoryError);
  EXPECT_FALSE(stager->is_loaded());
  EXPECT_EQ(stager->counters().out_of_memory_retries, 1);
  EXPECT_EQ(stager->counters().forced_releases, 2) << "one for each failed attempt";
  EXPECT_EQ(counting->releases, 2);
  EXPECT_EQ((counters() - before).out_of_memory, 2) << "no third attempt";
  ASSERT_EQ(count_events(EventKind::kOutOfMemoryRetry), 1U);
  EXPECT_EQ(sink->events(EventKind::kOutOfMemoryRetry)[0].bytes, 110 * kMiB);
  EXPECT_EQ(simulator.memory().allocated, 0);
  EXPECT_TRUE(tensors[0].tensor.device().is_cpu());
  expect_numbered(tensors);

  simulator.set_capacity(0, 120 * kMiB);
  stager->load();
  expect_numbered(tensors);
}

// The retry goes storage by storage: two holes of 12 MiB hold two storages of 12 MiB, but not their
// chunk of 24.
TEST_F(PinnedModuleStagerFailureTest, TheRetryFitsStoragesIntoHolesThatTheirChunkDoesNotFit) {
  context = counted_context();
  simulator.set_capacity(0, 32 * kMiB);
  auto tensors = numbered_tensors(2, 3 * kMiB);
  tensors.push_back({"empty", at::empty({0, 7})});
  const auto stager = stage(tensors);
  at::Tensor first;
  at::Tensor second;
  {
    const c10::StreamGuard guard(context->copy_stream());  // Cached memory belongs to a stream.
    const auto allocate = [this](std::int64_t bytes) {
      return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device()));
    };
    at::Tensor segment_1 = allocate(14 * kMiB);
    at::Tensor segment_2 = allocate(14 * kMiB);
    segment_1.reset();
    first = allocate(2 * kMiB);
    const at::Tensor hole_1 = allocate(12 * kMiB);
    segment_2.reset();
    second = allocate(2 * kMiB);
  }
  ASSERT_EQ(simulator.memory().segments, 2);
  const auto before = counters();
  stager->load();
  const auto moved = counters() - before;
  EXPECT_EQ(moved.out_of_memory, 1);
  EXPECT_EQ(moved.allocations, 2);
  EXPECT_EQ(moved.copies_h2d, 2);
  EXPECT_EQ(stager->counters().out_of_memory_retries, 1);
  EXPECT_EQ(stager->counters().forced_releases, 1);
  EXPECT_EQ(stager->counters().allocations, 2);
  EXPECT_EQ(stager->counters().copies, 2);
  EXPECT_EQ(counting->releases_in_handlers, 0) << "the first attempt is gone, its exception too";
  expect_numbered(tensors);
}

// case C32: a load that fails at its k-th piece, for every k.
TEST_F(PinnedModuleStagerFailureTest, ALoadThatFailsAtAnyPieceLeavesEveryTensorOnItsMaster) {
  const auto tensors = numbered_tensors(6, 3 * kMiB);  // 12 MiB each.
  const auto stager = stage(tensors, {.chunk_bytes_max = 12 * kMiB});
  stager->set_cache(retaining_cache());
  std::vector<const void*> masters;
  for (const auto& named : tensors) masters.push_back(named.tensor.data_ptr());
  int failures = 0;
  for (std::int64_t capacity = 6 * kMiB;; capacity += 12 * kMiB) {
    simulator.reset();
    simulator.set_capacity(0, capacity);
    const auto before = counters();
    try {
      stager->load();
      break;
    } catch (const c10::OutOfMemoryError&) {
      // The retry, storage by storage, copies what it gets; the first attempt copies nothing.
      ASSERT_EQ((counters() - before).copies_h2d, failures);
      ++failures;
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      ASSERT_EQ(tensors[i].tensor.data_ptr(), masters[i]);
    }
    ASSERT_EQ(simulator.memory().allocated, 0);
    expect_numbered(tensors);
  }
  EXPECT_EQ(failures, 6);
  expect_numbered(tensors);
  stager->offload();
}

TEST_F(PinnedModuleStagerFailureTest,
       AFailedReleaseAfterAFailedLoadIsReportedAndTheLoadsErrorLeaves) {
  context = counted_context();
  counting->fail_release = true;
  simulator.set_capacity(0, kMiB);
  const auto stager = stage(numbered_tensors(1, kMiB));
  EXPECT_THROW(stager->load(), c10::OutOfMemoryError);
  EXPECT_EQ(count_events(EventKind::kReleaseFailed), 2U);
  for (const auto& event : sink->events()) {
    if (event.kind != EventKind::kReleaseFailed) continue;
    EXPECT_EQ(event.message, "release failed") << "without LibTorch's backtrace";
  }
}

TEST_F(PinnedModuleStagerFailureTest, AFailedReleaseAtAnOffloadIsThrownAndTheComponentIsOffloaded) {
  context = counted_context();
  const auto tensors = numbered_tensors(2, 64);
  const auto stager = stage(tensors);
  stager->load();
  counting->fail_release = true;
  EXPECT_THROW(stager->offload(), c10::Error);
  EXPECT_FALSE(stager->is_loaded());
  EXPECT_EQ(stager->counters().forced_releases, 1);
  EXPECT_EQ(simulator.memory().allocated, 0);
  expect_numbered(tensors);
}

// A cache that keeps everything still gives way to a failure.
TEST_F(PinnedModuleStagerFailureTest, AForcedReleaseIsADecisionOfTheCache) {
  context = counted_context();
  simulator.set_capacity(0, kMiB);
  const auto stager = stage(numbered_tensors(1, kMiB));
  const auto cache = std::make_shared<BoundedAllocatorCache>(device(), counting,
                                                             std::make_shared<AlwaysRetention>());
  stager->set_cache(cache);
  EXPECT_THROW(stager->load(), c10::OutOfMemoryError);
  EXPECT_EQ(cache->counters().decisions(RetentionReason::kForced), 2);
  EXPECT_EQ(counting->releases, 2);
}

TEST_F(PinnedModuleStagerFailureTest, AFailedLoadOnTheCpuHasNoCacheToRelease) {
  const at::Tensor weight = at::rand({4, 2});
  PinnedModuleStager stager({{"w", weight}}, DeviceContext::create(c10::Device(c10::kCPU)));
  weight.t_();
  EXPECT_THROW(stager.load(), StateError);
  EXPECT_EQ(stager.counters().forced_releases, 1);
}

TEST_F(PinnedModuleStagerFailureTest, ACancelledThreadFinishesTheMoveThatItIsIn) {
  context = counted_context();
  counting->cancellable = true;
  const auto tensors = numbered_tensors(2, 64);
  const auto stager = stage(tensors);
  run_in_cancelled_thread([&] {
    stager->load();
    stager->offload();
  });
  EXPECT_FALSE(stager->is_loaded());
  EXPECT_EQ(stager->counters().offloads, 1);
  EXPECT_EQ(stager->counters().forced_releases, 0) << "nothing has failed";
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerFailureTest, ATensorReplacedWhileLoadedIsLeftAloneAndNamed) {
  const auto tensors = numbered_tensors(3, 64);
  const auto stager = stage(tensors);
  stager->load();
  const at::Tensor replacement = at::full({64}, 9.0F, at::TensorOptions().device(device()));
  tensors[1].tensor.unsafeGetTensorImpl()->shallow_copy_from(replacement.getIntrusivePtr());
  try {
    stager->offload();
    FAIL() << "expected a StateError";
  } catch (const StateError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'t1'"), ::testing::Not(HasSubstr("'t0'"))));
  }
  EXPECT_FALSE(stager->is_loaded());
  EXPECT_EQ(count_events(EventKind::kTensorReplaced), 1U);
  EXPECT_EQ(stager->counters().forced_releases, 1);
  EXPECT_EQ(tensors[1].tensor.device(), device());
  EXPECT_EQ(tensors[1].tensor.cpu()[0].item<float>(), 9.0F);
  EXPECT_TRUE(tensors[0].tensor.device().is_cpu());
  EXPECT_TRUE(tensors[2].tensor.device().is_cpu());
  EXPECT_THROW(stager->load(), StateError) << "the tensor is not the one that was staged";
  EXPECT_EQ(stager->counters().forced_releases, 2);
}

TEST_F(PinnedModuleStagerFailureTest, EveryReplacedTensorIsNamed) {
  const auto tensors = numbered_tensors(3, 64);
  const auto stager = stage(tensors);
  stager->load();
  const at::Tensor other = at::zeros({64});
  for (const std::size_t i : {0U, 2U}) {
    tensors[i].tensor.unsafeGetTensorImpl()->shallow_copy_from(other.getIntrusivePtr());
  }
  try {
    stager->offload();
    FAIL() << "expected a StateError";
  } catch (const StateError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'t0', 't2'"));
  }
  ASSERT_EQ(count_events(EventKind::kTensorReplaced), 2U);
  EXPECT_EQ(sink->events(EventKind::kTensorReplaced)[0].message, "t0");
  EXPECT_EQ(sink->events(EventKind::kTensorReplaced)[1].message, "t2");
}

TEST_F(PinnedModuleStagerFailureTest, ATensorReshapedWhileOffloadedIsNamedByTheNextLoad) {
  const std::vector<NamedTensor> tensors = {{"a.weight", at::rand({4, 2})}};
  const auto stager = stage(tensors);
  tensors[0].tensor.t_();
  const auto before = counters();
  try {
    stager->load();
    FAIL() << "expected a StateError";
  } catch (const StateError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'a.weight'"));
  }
  EXPECT_EQ((counters() - before).allocations, 0) << "refused before anything was allocated";
}

// case C08: refused by path, with everything as it was.
TEST_F(PinnedModuleStagerFailureTest, ARefusedTensorLeavesEveryOtherOneWhereItWas) {
  const at::Tensor good = at::rand({4});
  const void* memory = good.data_ptr();
  const auto pinned = simulator.pinned_bytes();
  try {
    stage({{"blocks.0.weight", good},
           {"blocks.1.weight", at::empty({4}, at::TensorOptions().device(at::kMeta))}});
    FAIL() << "expected a StagingError";
  } catch (const StagingError& error) {
    EXPECT_THAT(error.what(), HasSubstr("blocks.1.weight"));
  }
  EXPECT_EQ(good.data_ptr(), memory);
  EXPECT_EQ(simulator.pinned_bytes(), pinned);
}

// case C04: two components, one tensor: refused with both names.
TEST_F(PinnedModuleStagerFailureTest, ATensorOfAnotherStagedComponentIsRefusedWithBothNames) {
  const at::Tensor shared = at::rand({4});
  const auto first = stage({{"w", shared}}, {.name = "text_encoder"});
  const auto refusal = [&]() -> std::string {
    try {
      stage({{"tied", shared.view({2, 2})}}, {.name = "image_encoder"});
    } catch (const StagingError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal(), AllOf(HasSubstr("'image_encoder'"), HasSubstr("'tied'"),
                               HasSubstr("already staged by component 'text_encoder'")));
  first->load();
  EXPECT_THAT(refusal(), HasSubstr("'text_encoder'"));
}

// case C48: after a fork the device belongs to the parent.
TEST_F(PinnedModuleStagerFailureTest, AForkedChildIsRefusedAndItsDestructorsTouchNoDevice) {
  auto stager = stage(numbered_tensors(2, 64));
  stager->load();
  const auto before = counters();
  const pid_t child = ::fork();
  if (child == 0) {
    int failures = 0;
    const auto refused = [&](auto&& call) {
      try {
        call();
        ++failures;
      } catch (const StateError& error) {
        if (std::string(error.what()).find("created in another process") == std::string::npos) {
          ++failures;
        }
      }
    };
    refused([&] { stager->load(); });
    refused([&] { stager->offload(); });
    refused([&] { stager->wait_copies(); });
    refused([&] { stager->use_on(context->copy_stream()); });
    stager.reset();
    if (context->quarantined_bytes() != 1024) ++failures;
    if (context->abandoned_host_bytes() != 1024) ++failures;
    if (!(counters() == before)) ++failures;
    ::_exit(failures);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  stager->offload();
}

}  // namespace
}  // namespace offstage
