// SPDX-License-Identifier: Apache-2.0
// What becomes of device memory of which user code keeps a view beyond the offload.
#include "staging_fixture.hpp"

namespace offstage {
namespace {

class PinnedModuleStagerViewsTest : public StagingTest {};

TEST_F(PinnedModuleStagerViewsTest, AViewKeptBeyondAnOffloadIsReportedAndKeepsItsMemory) {
  const auto tensors = numbered_tensors(2, 64);
  const auto stager = stage(tensors);
  stager->load();
  at::Tensor kept = tensors[1].tensor.view({8, 8});
  stager->offload();
  ASSERT_EQ(count_events(EventKind::kSlabStillReferenced), 1U);
  EXPECT_EQ(sink->events().back().kind, EventKind::kComponentOffloaded);
  EXPECT_EQ(stager->still_referenced_bytes(), 1024);
  EXPECT_TRUE(at::equal(kept.cpu(), at::ones({8, 8})));
  kept.reset();
  EXPECT_EQ(stager->still_referenced_bytes(), 0);
  EXPECT_EQ(simulator.memory().allocated, 0) << "freed while the stager lives on";
}

TEST_F(PinnedModuleStagerViewsTest, EveryKeptViewIsNamedAndItsMemoryCounted) {
  const auto tensors = numbered_tensors(3, 64);
  const auto stager = stage(tensors, {.chunk_bytes_max = 512});
  std::vector<at::Tensor> kept;
  for (int round = 1; round <= 2; ++round) {
    stager->load();
    kept.push_back(tensors[0].tensor.view({8, 8}));
    kept.push_back(tensors[2].tensor.view({8, 8}));
    stager->offload();
    EXPECT_EQ(stager->still_referenced_bytes(), round * 3 * 512);
  }
  ASSERT_EQ(count_events(EventKind::kSlabStillReferenced), 2U);
  EXPECT_EQ(sink->events(EventKind::kSlabStillReferenced)[0].message, "t0, t2");
  EXPECT_EQ(sink->events(EventKind::kSlabStillReferenced)[0].bytes, 3 * 512);
}

TEST_F(PinnedModuleStagerViewsTest, AKeptViewBelongsToNobodyAndCanBeStaged) {
  const auto tensors = numbered_tensors(2, 64);
  const auto stager = stage(tensors);
  stager->load();
  const at::Tensor kept = tensors[1].tensor.view({8, 8});
  stager->offload();
  const auto other = stage({{"kept", kept}});
  EXPECT_TRUE(at::equal(kept, at::ones({8, 8})));
  EXPECT_EQ(simulator.memory().allocated, 0);
}

// Views keep the memory, and the streams that were users may still read it when they go.
TEST_F(PinnedModuleStagerViewsTest, MemoryOfAKeptViewIsNotReusedBeforeEveryUserIsDone) {
  auto tensors = numbered_tensors(2, 64);
  const auto stager = stage(tensors, {.chunk_bytes_max = 512});
  stager->set_cache(retaining_cache());
  stager->load();
  const c10::Stream side = new_stream();
  stager->use_on(side);
  at::Tensor kept = tensors[1].tensor.view({8, 8});
  {
    const auto side_held = simulator.hold(side);
    stager->offload();
    kept.reset();
    EXPECT_EQ(simulator.memory().allocated, 0);
    context->synchronize(context->current_stream());  // The first user is done.
    // An allocation looks which of the freed memory nobody uses any more.
    const at::Tensor other = at::empty({1}, at::TensorOptions().device(device()));
    EXPECT_EQ(simulator.memory().active, 512 + 2 * 512) << "held for the second user, all of it";
  }
}

}  // namespace
}  // namespace offstage
