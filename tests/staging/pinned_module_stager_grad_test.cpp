// SPDX-License-Identifier: Apache-2.0
// Gradients of staged weights: right where they can be, an error of LibTorch's where they cannot.
#include "staging_fixture.hpp"

#include <c10/core/GradMode.h>

namespace offstage {
namespace {

class PinnedModuleStagerGradTest : public StagingTest {
 protected:
  torch::nn::Linear linear{4, 3};
  at::Tensor input = at::rand({2, 4});

  at::Tensor loss() { return linear->forward(input.to(linear->weight.device())).sum(); }
};

TEST_F(PinnedModuleStagerGradTest, GradientsComputedWhileLoadedAddUpOverManyLoads) {
  const auto stager = stage(named_tensors(linear));
  for (int round = 0; round < 3; ++round) {
    stager->load();
    loss().backward();
    stager->offload();
  }
  const at::Tensor expected = input.sum(0).expand({3, 4}) * 3;
  EXPECT_TRUE(linear->weight.is_cpu());
  EXPECT_EQ(linear->weight.grad().device(), device()) << "it stays where it was computed";
  EXPECT_TRUE(at::allclose(linear->weight.grad().cpu(), expected));
  linear->zero_grad();
}

TEST_F(PinnedModuleStagerGradTest, AGraphThatIsStillAliveDoesNotHinderTheNextBackward) {
  const auto stager = stage(named_tensors(linear));
  const at::Tensor on_host = loss();  // Keeps accumulators that expect gradients on the CPU.
  stager->load();
  const at::Tensor on_device = loss();
  EXPECT_NO_THROW(on_device.backward());
  EXPECT_EQ(linear->weight.grad().device(), device());
  EXPECT_TRUE(at::allclose(linear->bias.grad().cpu(), at::full({3}, 2.0F)));
  stager->offload();
  linear->zero_grad();
}

// A graph that saved a view of a weight keeps the device memory, and the stager says so.
TEST_F(PinnedModuleStagerGradTest, ABackwardAfterTheOffloadIsRightWhereTheGraphSavedAView) {
  input.requires_grad_();  // So that the backward pass needs the weight.
  const at::Tensor expected = linear->weight.detach().clone().sum(0).expand({2, 4});
  const auto stager = stage(named_tensors(linear));
  stager->load();
  at::Tensor old = loss();
  stager->offload();
  EXPECT_EQ(count_events(EventKind::kSlabStillReferenced), 1U);
  old.backward();
  EXPECT_TRUE(at::allclose(input.grad(), expected));
  old.reset();
  linear->zero_grad();
  EXPECT_EQ(stager->still_referenced_bytes(), 0);
}

TEST_F(PinnedModuleStagerGradTest, ABackwardAfterTheOffloadIsAnErrorWhereTheGraphSavedTheWeight) {
  const at::Tensor scale = at::rand({4}).requires_grad_();
  input.requires_grad_();
  const auto stager = stage({{"scale", scale}});
  stager->load();
  at::Tensor old = (input.to(device()) * scale).sum();
  stager->offload();
  EXPECT_ANY_THROW(old.backward());
  EXPECT_TRUE(scale.is_cpu());
  old.reset();
  stager->load();
  EXPECT_NO_THROW((input.to(device()) * scale).sum().backward());
  stager->offload();
  scale.mutable_grad().reset();
}

TEST_F(PinnedModuleStagerGradTest, ABackwardThroughAValueThatAnOffloadTookBackIsAnError) {
  for (const EditPolicy edits : {EditPolicy::kIgnore, EditPolicy::kDetect}) {
    const at::Tensor scale = at::ones({4});
    const at::Tensor in = at::ones({4}).requires_grad_();
    const auto stager = stage({{"scale", scale}}, {.edits = edits});
    stager->load();
    scale.fill_(2);
    const at::Tensor old = (in.to(device()) * scale).sum();
    stager->offload();
    stager->load();
    EXPECT_EQ(scale.cpu()[0].item<float>(), 1);
    EXPECT_ANY_THROW(old.backward()) << "a gradient of 1 would be wrong: it was 2";
    stager->offload();
  }
}

TEST_F(PinnedModuleStagerGradTest, ABackwardThroughALostValueOfABufferIsAnErrorToo) {
  const at::Tensor scale = at::ones({4});
  const at::Tensor in = at::ones({4}).requires_grad_();
  const auto stager = stage({{"scale", scale, /*is_buffer=*/true}}, {.edits = EditPolicy::kDetect});
  stager->load();
  scale.variable_data().fill_(2);  // Round its version, as batch norm writes its statistics.
  const at::Tensor old = (in.to(device()) * scale).sum();
  stager->offload();
  EXPECT_EQ(stager->counters().edits_lost, 1);
  stager->load();
  EXPECT_ANY_THROW(old.backward());
  stager->offload();
}

TEST_F(PinnedModuleStagerGradTest, ABackwardThroughAValueThatWasWrittenBackIsRight) {
  const at::Tensor scale = at::ones({4});
  const at::Tensor in = at::ones({4}).requires_grad_();
  const auto stager = stage({{"scale", scale}}, {.edits = EditPolicy::kWriteBack});
  stager->load();
  scale.fill_(2);
  const at::Tensor old = (in.to(device()) * scale).sum();
  stager->offload();
  stager->load();
  old.backward();
  EXPECT_EQ(in.grad()[0].item<float>(), 2);
  stager->offload();
}

TEST_F(PinnedModuleStagerGradTest, TensorsWithAGradientAreRefusedAtConstructionByName) {
  loss().backward();
  try {
    stage(named_tensors(linear));
    FAIL() << "staged";
  } catch (const StagingError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'weight' has a gradient"));
  }
}

}  // namespace
}  // namespace offstage
