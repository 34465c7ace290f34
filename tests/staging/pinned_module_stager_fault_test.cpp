// SPDX-License-Identifier: Apache-2.0
// What a stager does when the device itself fails: work that cannot be awaited keeps its memory.
#include "failing_device_guard.hpp"
#include "staging_fixture.hpp"

#include <offstage/base/error.hpp>

#include <c10/core/StreamGuard.h>

namespace offstage {
namespace {

class PinnedModuleStagerFaultTest : public StagingTest {
 protected:
  void TearDown() override {
    driver.recover();
    StagingTest::TearDown();
  }

  FailingDeviceGuard& driver = FailingDeviceGuard::install(simulator.device().type());
  // Made anew behind the guard, so that the events of its stagers fail too.
  std::shared_ptr<RefusingHostMemory> memory =
      std::make_shared<RefusingHostMemory>(simulator.host_memory(), 100);
  std::shared_ptr<DeviceContext> failing_context = DeviceContext::create(
      device(), {.host_memory = memory, .telemetry = telemetry, .sink = sink});
};

/// The reference to its device memory that a loaded tensor holds; dropping it once more than it was
/// taken frees memory that is kept for ever, so that the simulator is left as it was found.
class SlabReference {
 public:
  explicit SlabReference(const at::Tensor& loaded)
      : slab_(loaded.storage().data_ptr().get_context()),
        drop_(loaded.storage().data_ptr().get_deleter()) {}
  void drop() const { drop_(slab_); }

 private:
  void* slab_;
  c10::DeleterFnPtr drop_;
};

TEST_F(PinnedModuleStagerFaultTest, AStreamThatTakesNoEventIsAwaitedOnTheHost) {
  context = failing_context;
  const auto tensors = numbered_tensors(2, 64);
  const auto stager = stage(tensors);
  stager->set_cache(retaining_cache());
  stager->load();
  const c10::Stream side = new_stream();
  stager->use_on(side);
  driver.no_events = context->current_stream();
  const auto before = counters();
  stager->offload();
  EXPECT_EQ((counters() - before).host_waits, 1);
  EXPECT_EQ((counters() - before).stream_waits, 1) << "the other stream takes one";
  EXPECT_EQ(stager->counters().host_waits, 1);
  ASSERT_EQ(count_events(EventKind::kErrorDropped), 1U);
  EXPECT_EQ(sink->events(EventKind::kErrorDropped)[0].message, "no event can be recorded");
  EXPECT_EQ(context->quarantined_bytes(), 0);
  EXPECT_EQ(simulator.memory().allocated, 0);
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerFaultTest, MemoryOfAStreamThatCannotBeAwaitedIsKeptForEver) {
  context = failing_context;
  const auto tensors = numbered_tensors(2, 64);
  const auto stager = stage(tensors, {.name = "vae"});
  stager->set_cache(retaining_cache());
  stager->load();
  stager->use_on(new_stream());
  const SlabReference kept(tensors[0].tensor);
  driver.lost_stream = context->current_stream();
  const auto before = counters();
  try {
    stager->offload();
    FAIL() << "expected the driver's error";
  } catch (const c10::Error& error) {
    EXPECT_STREQ(error.what_without_backtrace(), "the stream is lost");
  }
  EXPECT_FALSE(stager->is_loaded());
  EXPECT_TRUE(tensors[1].tensor.device().is_cpu());
  expect_numbered(tensors);
  EXPECT_EQ((counters() - before).stream_waits, 1) << "the other stream is waited for all the same";
  EXPECT_EQ(context->quarantined_bytes(), 1024);
  ASSERT_EQ(count_events(EventKind::kSlabQuarantined), 1U);
  EXPECT_EQ(sink->events(EventKind::kSlabQuarantined)[0].bytes, 1024);
  EXPECT_EQ(sink->events(EventKind::kSlabQuarantined)[0].component, "vae");
  EXPECT_EQ(stager->counters().forced_releases, 1);
  EXPECT_EQ(stager->counters().offloads, 0);
  ASSERT_EQ(simulator.memory().allocated, 1024);
  kept.drop();
  EXPECT_EQ(simulator.memory().allocated, 0);
}

// The stream that is current at the offload may be using the component.
TEST_F(PinnedModuleStagerFaultTest, MemoryIsKeptForEverIfTheCurrentStreamIsUnknown) {
  context = failing_context;
  const auto tensors = numbered_tensors(2, 64);
  const auto stager = stage(tensors);
  stager->set_cache(retaining_cache());
  stager->load();
  const SlabReference kept(tensors[0].tensor);
  driver.no_current_stream = true;
  EXPECT_THROW(stager->offload(), c10::Error);
  driver.recover();
  EXPECT_EQ(context->quarantined_bytes(), 1024);
  ASSERT_EQ(simulator.memory().allocated, 1024);
  kept.drop();
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerFaultTest, EditsInMemoryThatCannotBeAwaitedAreReportedAsLost) {
  for (const EditPolicy edits :
       {EditPolicy::kDetect, EditPolicy::kReject, EditPolicy::kWriteBack}) {
    simulator.set_race_action(testing::RaceAction::kIgnore);  // The memory is dropped in the end.
    context = failing_context;
    const auto tensors = numbered_tensors(2, 64);
    const auto stager = stage(tensors, {.edits = edits});
    stager->load();
    tensors[1].tensor.add_(10);
    const SlabReference kept(tensors[0].tensor);
    driver.lost_stream = context->current_stream();
    EXPECT_THROW(stager->offload(), c10::Error);
    driver.recover();
    EXPECT_EQ(stager->counters().edits_lost, 1);
    EXPECT_EQ(stager->counters().edits_kept, 0);
    expect_numbered(tensors);
    kept.drop();
  }
}

TEST_F(PinnedModuleStagerFaultTest, DestructionKeepsMemoryThatCannotBeAwaited) {
  context = failing_context;
  const auto tensors = numbered_tensors(2, 64);
  auto stager = stage(tensors);
  stager->load();
  const SlabReference kept(tensors[0].tensor);
  driver.lost_stream = context->current_stream();
  stager.reset();
  EXPECT_EQ(context->quarantined_bytes(), 1024);
  ASSERT_EQ(simulator.memory().allocated, 1024);
  kept.drop();
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerFaultTest, AKeptViewWhoseStreamsCannotBeRecordedIsReported) {
  context = failing_context;
  const auto tensors = numbered_tensors(2, 64);
  const auto stager = stage(tensors);
  stager->load();
  const at::Tensor kept = tensors[1].tensor.view({8, 8});
  driver.no_memory_records = true;
  stager->offload();
  ASSERT_EQ(count_events(EventKind::kErrorDropped), 1U);
  EXPECT_EQ(sink->events(EventKind::kErrorDropped)[0].message, "no stream can be recorded");
  EXPECT_TRUE(at::equal(kept.cpu(), at::ones({8, 8})));
}

TEST_F(PinnedModuleStagerFaultTest, CopiesWhoseWaitFailedAreWaitedForTheNextTime) {
  context = failing_context;
  const auto stager = stage(numbered_tensors(2, 64));
  stager->load();
  driver.lost_stream = context->copy_stream();
  EXPECT_THROW(stager->wait_copies(), c10::Error);
  driver.recover();
  const auto before = counters();
  stager->wait_copies();
  stager->wait_copies();
  EXPECT_EQ((counters() - before).host_waits, 1) << "then there are no copies under way any more";
}

TEST_F(PinnedModuleStagerFaultTest, MastersThatACopyMayStillReadAreKeptForEver) {
  context = failing_context;
  auto tensors = numbered_tensors(2, 64);
  const auto pinned = simulator.pinned_bytes();
  auto stager = stage(tensors, {.chunk_bytes_max = 512});
  const std::vector<void*> masters = {tensors[0].tensor.data_ptr(), tensors[1].tensor.data_ptr()};
  stager->load();
  stager->offload();
  driver.lost_stream = context->copy_stream();
  stager.reset();
  EXPECT_EQ(context->abandoned_host_bytes(), 0) << "the tensors are still bound to them";
  tensors.clear();
  EXPECT_EQ(context->abandoned_host_bytes(), 1024);
  ASSERT_EQ(memory->live, 2);
  EXPECT_EQ(simulator.pinned_bytes() - pinned, 1024);
  driver.recover();
  simulator.synchronize();
  for (void* master : masters) {
    memory->unpin(master, 512);
    memory->free(master, 512);
  }
}

TEST_F(PinnedModuleStagerFaultTest, MastersThatTheDeviceDoesNotLetGoOfAreKeptForEver) {
  context = failing_context;
  auto tensors = numbered_tensors(1, 64);
  stage(tensors);
  void* const master = tensors[0].tensor.data_ptr();
  memory->unpin_fails = true;
  tensors.clear();
  EXPECT_EQ(context->abandoned_host_bytes(), 512);
  ASSERT_EQ(memory->live, 1);
  memory->unpin_fails = false;
  memory->unpin(master, 512);
  memory->free(master, 512);
}

}  // namespace
}  // namespace offstage
