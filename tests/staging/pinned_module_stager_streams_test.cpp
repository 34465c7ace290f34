// SPDX-License-Identifier: Apache-2.0
// What a stager does with streams: who waits for whom, and that the host does not.
#include "staging_fixture.hpp"

#include <offstage/base/error.hpp>

#include <c10/core/StreamGuard.h>

namespace offstage {
namespace {

class PinnedModuleStagerStreamsTest : public StagingTest {};

/// Two components of the same size, so that the second gets the memory that the first gives back.
class PinnedModuleStagerTurnsTest : public PinnedModuleStagerStreamsTest {
 protected:
  void TearDown() override {
    first_stager.reset();
    second_stager.reset();
    on_device.reset();
    output.reset();
    StagingTest::TearDown();
  }

  void compute() { output = first->forward(on_device); }

  void expect_right_output() {
    simulator.synchronize(0);
    EXPECT_TRUE(at::equal(output.cpu(), expected));
  }

  torch::nn::Linear first{64, 64};
  torch::nn::Linear second{64, 64};
  const at::Tensor input = at::rand({4, 64});
  const at::Tensor expected = first->forward(input);
  at::Tensor on_device = input.to(device());
  std::shared_ptr<PinnedModuleStager> first_stager = stage(named_tensors(first));
  std::shared_ptr<PinnedModuleStager> second_stager = stage(named_tensors(second));
  at::Tensor output;
};

// Really asynchronous: the copy stream stands still, and load() returns.
TEST_F(PinnedModuleStagerStreamsTest, LoadReturnsWhileTheCopyStreamAndTheComputeStreamStandStill) {
  torch::nn::Linear linear(16, 16);
  const at::Tensor input = at::rand({4, 16});
  const at::Tensor expected = linear->forward(input);
  const at::Tensor on_device = input.to(device());
  const auto stager = stage(named_tensors(linear));
  stager->set_cache(retaining_cache());
  at::Tensor output;
  {
    const auto copies_held = simulator.hold(context->copy_stream());
    const auto compute_held = simulator.hold(context->current_stream());
    stager->load();
    output = linear->forward(on_device);
  }
  EXPECT_TRUE(at::equal(output.cpu(), expected));
}

// A load never waits for compute: the copies finish under a compute stream that stands still.
TEST_F(PinnedModuleStagerStreamsTest, CopiesRunWhileTheComputeStreamStandsStill) {
  const auto stager = stage(numbered_tensors(2, 64));
  const auto compute_held = simulator.hold(context->current_stream());
  stager->load();
  stager->wait_copies();
  EXPECT_TRUE(stager->is_loaded());
}

// case C26: the wait is placed on the caller's stream, not on the default or the copy stream.
TEST_F(PinnedModuleStagerStreamsTest, TheCallersStreamWaitsForTheCopies) {
  torch::nn::Linear linear(16, 16);
  const at::Tensor input = at::rand({4, 16});
  const at::Tensor expected = linear->forward(input);
  const at::Tensor on_device = input.to(device());
  const auto stager = stage(named_tensors(linear));
  const c10::StreamGuard guard(new_stream());
  at::Tensor output;
  {
    const auto copies_held = simulator.hold(context->copy_stream());
    stager->load();
    output = linear->forward(on_device);
  }
  EXPECT_TRUE(at::equal(output.cpu(), expected)) << "without the wait the forward reads poison";
}

// P01: already loaded, but on another stream.
TEST_F(PinnedModuleStagerStreamsTest, ASecondStreamWaitsForACopyThatIsStillUnderWay) {
  torch::nn::Linear linear(16, 16);
  const at::Tensor input = at::rand({4, 16});
  const at::Tensor expected = linear->forward(input);
  const at::Tensor on_device = input.to(device());
  const auto stager = stage(named_tensors(linear));
  at::Tensor output;
  {
    const auto copies_held = simulator.hold(context->copy_stream());
    stager->load();
    const c10::StreamGuard guard(new_stream());
    const auto before = counters();
    stager->load();
    EXPECT_EQ((counters() - before).stream_waits, 1);
    output = linear->forward(on_device);
  }
  simulator.synchronize(0);
  EXPECT_TRUE(at::equal(output.cpu(), expected));
}

// The memory of an offloaded component goes to the next one, behind the compute that uses it.
TEST_F(PinnedModuleStagerTurnsTest, AnOffloadUnderQueuedComputeDoesNotDisturbIt) {
  first_stager->set_cache(retaining_cache());
  {
    first_stager->load();
    const auto compute_held = simulator.hold(context->current_stream());
    compute();
    first_stager->offload();
    second_stager->load();
  }
  expect_right_output();
}

TEST_F(PinnedModuleStagerTurnsTest, AnOffloadWaitsForADeclaredStream) {
  first_stager->set_cache(retaining_cache());
  const c10::Stream side = new_stream();
  {
    first_stager->load();
    first_stager->use_on(side);
    const auto side_held = simulator.hold(side);
    {
      const c10::StreamGuard guard(side);
      compute();
    }
    const auto before = counters();
    first_stager->offload();
    EXPECT_EQ((counters() - before).events_recorded, 2) << "one for each user stream";
    second_stager->load();
  }
  expect_right_output();
}

// Nobody declared the stream that the offload happens on, but it may be the one that computes.
TEST_F(PinnedModuleStagerTurnsTest, AnOffloadWaitsForTheStreamThatIsCurrent) {
  first_stager->set_cache(retaining_cache());
  first_stager->load();
  first_stager->wait_copies();
  {
    const c10::StreamGuard guard(new_stream());
    const auto side_held = simulator.hold(context->current_stream());
    compute();
    first_stager->offload();
    second_stager->load();
  }
  expect_right_output();
}

TEST_F(PinnedModuleStagerTurnsTest, DestructionUnderQueuedComputeDoesNotDisturbIt) {
  {
    first_stager->load();
    const auto compute_held = simulator.hold(context->current_stream());
    compute();
    first_stager.reset();
    second_stager->load();
  }
  expect_right_output();
}

TEST_F(PinnedModuleStagerStreamsTest, TheCopyStreamWaitsForNothingIfItIsTheUser) {
  const auto tensors = numbered_tensors(2, 64);
  const auto stager = stage(tensors);
  stager->set_cache(retaining_cache());
  const c10::StreamGuard guard(context->copy_stream());
  const auto before = counters();
  stager->load();
  expect_numbered(tensors);
  stager->offload();
  EXPECT_EQ((counters() - before).events_recorded, 1) << "the one that other streams may wait for";
  EXPECT_EQ((counters() - before).stream_waits, 0);
  EXPECT_EQ(stager->counters().stream_waits, 0);
}

TEST_F(PinnedModuleStagerStreamsTest, AStreamThatLoadsTwiceIsWaitedForOnce) {
  const auto stager = stage(numbered_tensors(2, 64));
  stager->set_cache(retaining_cache());
  stager->load();
  stager->load();
  const auto before = counters();
  stager->offload();
  EXPECT_EQ((counters() - before).events_recorded, 1);
}

TEST_F(PinnedModuleStagerStreamsTest, AnOffloadWaitsForNoUserOfAnEarlierLoad) {
  const auto stager = stage(numbered_tensors(2, 64));
  stager->set_cache(retaining_cache());
  {
    const c10::StreamGuard guard(new_stream());
    stager->load();
    stager->offload();
  }
  stager->load();
  const auto before = counters();
  stager->offload();
  EXPECT_EQ((counters() - before).events_recorded, 1);
}

TEST_F(PinnedModuleStagerStreamsTest, WaitCopiesMakesTheHostWaitForTheCopies) {
  const auto stager = stage(numbered_tensors(2, 64));
  const auto before = counters();
  stager->wait_copies();
  EXPECT_EQ((counters() - before).host_waits, 0) << "there are none yet";
  stager->load();
  stager->wait_copies();
  EXPECT_EQ((counters() - before).host_waits, 1);
}

TEST_F(PinnedModuleStagerStreamsTest, OnTheCpuEveryStreamIsOfTheComponentsDevice) {
  PinnedModuleStager stager(numbered_tensors(1, 8), DeviceContext::create(c10::Device(c10::kCPU)));
  stager.load();
  EXPECT_NO_THROW(stager.use_on(c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU, 0))));
}

TEST_F(PinnedModuleStagerStreamsTest, UseOnNeedsALoadedComponentAndAStreamOfItsDevice) {
  const auto stager = stage(numbered_tensors(1, 8));
  EXPECT_THROW(stager->use_on(new_stream()), StateError);
  stager->load();
  const c10::impl::VirtualGuardImpl guard(device().type());
  EXPECT_THROW(stager->use_on(guard.getDefaultStream(simulator.device(1))), InvalidArgument);
}

}  // namespace
}  // namespace offstage
