// SPDX-License-Identifier: Apache-2.0
// Weights that are written: on the device by the body, in both places by update(), or in host
// memory by nobody who should.
#include "staging_fixture.hpp"

#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>

namespace offstage {
namespace {

using testing::Fault;
using testing::FaultPoint;
using testing::FaultWhen;
using ::testing::HasSubstr;

class PinnedModuleStagerEditsTest : public StagingTest {
 protected:
  /// Three tensors of one storage each; the second is written on the device.
  std::vector<NamedTensor> tensors = numbered_tensors(3, 300);

  std::shared_ptr<PinnedModuleStager> make(EditPolicy edits) {
    return stage(tensors, {.name = "vae", .edits = edits});
  }
  void edit() { tensors[1].tensor.add_(10); }
  float value(std::size_t index) const { return tensors[index].tensor.cpu()[7].item<float>(); }
};

// cases C36 (an edit is kept, refused or lost as the policy says) and P05
TEST_F(PinnedModuleStagerEditsTest, IgnoredEditsAreLostWithoutACheck) {
  const auto stager = make(EditPolicy::kIgnore);
  stager->load();
  edit();
  EXPECT_EQ(value(1), 11);
  stager->offload();
  EXPECT_EQ(value(1), 1);
  EXPECT_EQ(stager->counters().edits_lost, 0);
  EXPECT_EQ(count_events(EventKind::kEditLost), 0U);
}

TEST_F(PinnedModuleStagerEditsTest, DetectedEditsAreLostAndReportedByPath) {
  const auto stager = make(EditPolicy::kDetect);
  stager->load();
  edit();
  stager->offload();
  EXPECT_EQ(value(1), 1);
  EXPECT_EQ(stager->counters().edits_lost, 1);
  ASSERT_EQ(count_events(EventKind::kEditLost), 1U);
  EXPECT_EQ(sink->events(EventKind::kEditLost)[0].message, "t1");
  EXPECT_EQ(sink->events(EventKind::kEditLost)[0].bytes, 1200);
}

TEST_F(PinnedModuleStagerEditsTest, DetectingCostsNoCopyAndNoHostWaitWhereTensorsHaveVersions) {
  const auto stager = make(EditPolicy::kDetect);
  stager->set_cache(retaining_cache());
  stager->load();
  edit();
  const auto before = counters();
  stager->offload();
  const auto moved = counters() - before;
  EXPECT_EQ(moved.copies_d2h, 0);
  EXPECT_EQ(moved.host_waits, 0);
}

TEST_F(PinnedModuleStagerEditsTest, AnEditThroughAViewIsDetected) {
  const auto stager = make(EditPolicy::kDetect);
  stager->load();
  tensors[2].tensor.narrow(0, 0, 1).zero_();
  stager->offload();
  ASSERT_EQ(count_events(EventKind::kEditLost), 1U);
  EXPECT_EQ(sink->events(EventKind::kEditLost)[0].message, "t2");
}

TEST_F(PinnedModuleStagerEditsTest, NothingIsReportedWhenNothingWasWritten) {
  const auto stager = make(EditPolicy::kReject);
  for (int round = 0; round < 3; ++round) {
    stager->load();
    static_cast<void>(tensors[1].tensor.add(1));
    EXPECT_NO_THROW(stager->offload());
  }
  EXPECT_EQ(stager->counters().edits_lost, 0);
}

TEST_F(PinnedModuleStagerEditsTest, RejectedEditsAreAnErrorOfTheOffloadThatIsDoneAllTheSame) {
  const auto stager = make(EditPolicy::kReject);
  stager->load();
  edit();
  tensors[0].tensor.fill_(5);
  try {
    stager->offload();
    FAIL() << "not thrown";
  } catch (const StateError& error) {
    EXPECT_THAT(error.what(), HasSubstr("component 'vae': offload: written on the device"));
    EXPECT_THAT(error.what(), HasSubstr("t0, t1"));
  }
  EXPECT_FALSE(stager->is_loaded());
  EXPECT_EQ(simulator.memory().allocated, 0);
  expect_numbered(tensors);
  EXPECT_NO_THROW(stager->load());
}

TEST_F(PinnedModuleStagerEditsTest, WrittenBackEditsAreAppliedOnceOverManyCycles) {
  const auto stager = make(EditPolicy::kWriteBack);
  stager->load();
  edit();
  stager->offload();
  EXPECT_EQ(value(1), 11);
  for (int round = 0; round < 2; ++round) {
    stager->load();
    EXPECT_EQ(value(1), 11);
    stager->offload();
  }
  EXPECT_EQ(value(1), 11);
  EXPECT_EQ(value(0), 0);
  EXPECT_EQ(value(2), 2);
  EXPECT_EQ(stager->counters().edits_kept, 1);
}

TEST_F(PinnedModuleStagerEditsTest, WritingBackCopiesOnlyWhatWasWritten) {
  const auto stager = make(EditPolicy::kWriteBack);
  stager->set_cache(retaining_cache());
  stager->load();
  edit();
  auto before = counters();
  stager->offload();
  auto moved = counters() - before;
  EXPECT_EQ(moved.copies_d2h, 1);
  EXPECT_EQ(moved.bytes_d2h, 1200);
  EXPECT_EQ(moved.host_waits, 1);

  stager->load();
  before = counters();
  stager->offload();
  moved = counters() - before;
  EXPECT_EQ(moved.copies_d2h, 0);
  EXPECT_EQ(moved.host_waits, 0);
}

// Inference tensors have no version counter: their bytes are compared.
TEST_F(PinnedModuleStagerEditsTest, EditsOfInferenceTensorsAreDetectedByTheirBytes) {
  const c10::InferenceMode mode;
  tensors = numbered_tensors(3, 300);
  const auto stager = make(EditPolicy::kDetect);
  stager->load();
  stager->offload();
  EXPECT_EQ(count_events(EventKind::kEditLost), 0U);
  stager->load();
  edit();
  stager->offload();
  ASSERT_EQ(count_events(EventKind::kEditLost), 1U);
  EXPECT_EQ(sink->events(EventKind::kEditLost)[0].message, "t1");
}

TEST_F(PinnedModuleStagerEditsTest, EditsOfInferenceTensorsAreWrittenBack) {
  const c10::InferenceMode mode;
  tensors = numbered_tensors(3, 300);
  const auto stager = make(EditPolicy::kWriteBack);
  stager->load();
  edit();
  stager->offload();
  EXPECT_EQ(value(1), 11);
}

TEST_F(PinnedModuleStagerEditsTest, AnEditInsideInferenceModeOfANormalTensorIsDetected) {
  const auto stager = make(EditPolicy::kDetect);
  {
    const c10::InferenceMode mode;
    stager->load();
    edit();
    stager->offload();
  }
  EXPECT_EQ(count_events(EventKind::kEditLost), 1U);
}

// An edit on a second stream is awaited before it is copied.
TEST_F(PinnedModuleStagerEditsTest, WritingBackWaitsForTheStreamThatWrites) {
  const auto stager = make(EditPolicy::kWriteBack);
  const c10::Stream other = new_stream();
  for (int round = 0; round < 50; ++round) {
    stager->load();
    stager->use_on(other);
    {
      const c10::StreamGuard guard(other);
      edit();
    }
    stager->offload();
    ASSERT_EQ(value(1), 11 + 10 * round);
  }
}

// case C25: the masters have the new values when the call returns.
TEST_F(PinnedModuleStagerEditsTest, WriteBackReturnsWhenTheMastersHaveTheDevicesValues) {
  const auto stager = make(EditPolicy::kIgnore);
  const float* const master = tensors[1].tensor.const_data_ptr<float>();
  stager->load();
  for (int round = 1; round <= 1000; ++round) {
    edit();
    stager->write_back();
    ASSERT_EQ(master[299], static_cast<float>(1 + 10 * round));
  }
  EXPECT_TRUE(stager->is_loaded());
  stager->offload();
  EXPECT_EQ(value(1), 10001);
}

TEST_F(PinnedModuleStagerEditsTest, WriteBackOfAnOffloadedComponentDoesNothing) {
  const auto stager = make(EditPolicy::kIgnore);
  const auto before = counters();
  stager->write_back();
  EXPECT_EQ(counters(), before);
}

TEST_F(PinnedModuleStagerEditsTest, AWriteBackThatFailsLeavesTheComponentLoaded) {
  const auto stager = make(EditPolicy::kIgnore);
  stager->load();
  edit();
  simulator.faults().fail(FaultPoint::kCopy, FaultWhen::nth(1), Fault::kAccelerator);
  EXPECT_ANY_THROW(stager->write_back());
  EXPECT_TRUE(stager->is_loaded());
  EXPECT_EQ(value(1), 11);
  EXPECT_NO_THROW(stager->write_back());
  stager->offload();
  EXPECT_EQ(value(1), 11);
}

TEST_F(PinnedModuleStagerEditsTest, AnOffloadThatCannotWriteBackThrowsAndIsDone) {
  const auto stager = make(EditPolicy::kWriteBack);
  stager->load();
  edit();
  simulator.faults().fail(FaultPoint::kCopy, FaultWhen::nth(1), Fault::kAccelerator);
  EXPECT_ANY_THROW(stager->offload());
  EXPECT_FALSE(stager->is_loaded());
  expect_numbered(tensors);
  EXPECT_EQ(stager->counters().forced_releases, 1);
}

// --- update ---

TEST_F(PinnedModuleStagerEditsTest, AnUpdateWhileOffloadedArrivesOnTheDeviceAtTheNextLoad) {
  const auto stager = make(EditPolicy::kReject);
  stager->update({{"t1", at::full({300}, 21.0F)}});
  EXPECT_EQ(value(1), 21);
  stager->load();
  EXPECT_EQ(value(1), 21);
  stager->offload();
  EXPECT_EQ(value(1), 21);
}

TEST_F(PinnedModuleStagerEditsTest, AnUpdateWhileLoadedIsSeenByLaterWorkOnEveryUserAndKept) {
  const auto stager = make(EditPolicy::kReject);
  stager->load();
  const c10::Stream other = new_stream();
  stager->use_on(other);
  const at::Tensor before = tensors[1].tensor + 0;
  const auto counts = counters();
  stager->update({{"t1", at::full({300}, 21.0F)}, {"t2", at::full({300}, 22.0F)}});
  const auto moved = counters() - counts;
  EXPECT_EQ(moved.copies_h2d, 2);
  EXPECT_EQ(moved.allocations, 0);
  EXPECT_EQ(tensors[1].tensor.device(), device());
  EXPECT_EQ(before.cpu()[0].item<float>(), 1) << "work queued before sees the old value";
  {
    const c10::StreamGuard guard(other);
    EXPECT_EQ(value(2), 22);
  }
  EXPECT_NO_THROW(stager->offload()) << "an update is no edit";
  EXPECT_EQ(value(1), 21);
  EXPECT_EQ(value(2), 22);
  EXPECT_EQ(value(0), 0);
}

TEST_F(PinnedModuleStagerEditsTest, AnUpdateForgetsNoEditOfAnotherTensor) {
  const auto stager = make(EditPolicy::kWriteBack);
  stager->load();
  edit();
  stager->update({{"t2", at::full({300}, 22.0F)}});
  stager->offload();
  EXPECT_EQ(value(1), 11);
  EXPECT_EQ(value(2), 22);
}

TEST_F(PinnedModuleStagerEditsTest, AnUpdateTakesItsValueFromAnyDeviceAndAnyStrides) {
  const at::Tensor weight = at::zeros({4, 3}).t();
  const auto stager = stage({{"weight", weight}});
  const at::Tensor value = at::arange(12).to(at::kFloat).view({3, 4});
  stager->update({{"weight", value.to(device())}});
  EXPECT_TRUE(at::equal(weight, value));
  EXPECT_EQ(weight.strides(), at::IntArrayRef({1, 3}));
}

TEST_F(PinnedModuleStagerEditsTest, AnUpdateOfOneOfTwoTiedTensorsIsSeenByBothAndByEitherName) {
  torch::nn::Linear linear(4, 4);
  const auto stager = stage({{"in.weight", linear->weight},
                             {"out.weight", linear->weight},
                             {"view", linear->weight.detach().view({16})}});
  stager->update({{"out.weight", at::full({4, 4}, 3.0F)}});
  stager->load();
  EXPECT_EQ(linear->weight.cpu()[1][1].item<float>(), 3);
  EXPECT_TRUE(linear->weight.requires_grad());
  EXPECT_TRUE(linear->weight.is_leaf());
}

TEST_F(PinnedModuleStagerEditsTest, AnUpdateWaitsForCopiesThatStillReadTheMasters) {
  const auto stager = make(EditPolicy::kIgnore);
  stager->load();
  const at::Tensor old = tensors[1].tensor + 0;
  stager->offload();
  const auto before = counters();
  stager->update({{"t1", at::full({300}, 21.0F)}});
  EXPECT_EQ((counters() - before).host_waits, 1);
  EXPECT_EQ(old.cpu()[299].item<float>(), 1);
}

TEST_F(PinnedModuleStagerEditsTest, AnUpdateRaisesTheVersionOfTheTensor) {
  const auto stager = make(EditPolicy::kIgnore);
  const auto before = tensors[1].tensor._version();
  stager->update({{"t1", at::full({300}, 21.0F)}});
  EXPECT_GT(tensors[1].tensor._version(), before);
}

TEST_F(PinnedModuleStagerEditsTest, InferenceTensorsAreUpdatedOutsideAndInsideInferenceMode) {
  {
    const c10::InferenceMode mode;
    tensors = numbered_tensors(3, 300);
  }
  const auto stager = make(EditPolicy::kIgnore);
  stager->update({{"t1", at::full({300}, 21.0F)}});
  EXPECT_EQ(value(1), 21);
  const c10::InferenceMode mode;
  stager->load();
  stager->update({{"t1", at::full({300}, 22.0F)}});
  EXPECT_EQ(value(1), 22);
  stager->offload();
}

TEST_F(PinnedModuleStagerEditsTest, AWrongUpdateNamesWhatWasExpectedAndChangesNothing) {
  const at::Tensor expanded = at::zeros({2, 1}).expand({2, 5});
  tensors.push_back({"wide", expanded});
  const auto stager = make(EditPolicy::kIgnore);
  const auto refused = [&](const char* path, const at::Tensor& value) -> std::string {
    try {
      stager->update({{"t1", at::full({300}, 21.0F)}, {path, value}});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refused("t9", at::zeros({300})), HasSubstr("no tensor 't9' is managed"));
  EXPECT_THAT(refused("t2", at::zeros({299})), HasSubstr("has sizes [299], expected [300]"));
  EXPECT_THAT(refused("t2", at::zeros({300}, at::kDouble)),
              HasSubstr("has dtype Double, expected Float"));
  EXPECT_THAT(refused("t2", {}), HasSubstr("is undefined"));
  EXPECT_THAT(refused("wide", at::zeros({2, 5})), HasSubstr("share memory"));
  EXPECT_EQ(value(1), 1);
}

TEST_F(PinnedModuleStagerEditsTest, AnUpdateThatCannotReachTheDeviceOffloadsWithTheNewValues) {
  for (const FaultPoint point : {FaultPoint::kCopy, FaultPoint::kRecord, FaultPoint::kWait}) {
    const auto stager = make(EditPolicy::kIgnore);
    stager->load();
    simulator.faults().fail(point, FaultWhen::from(1), Fault::kAccelerator);
    EXPECT_ANY_THROW(stager->update({{"t1", at::full({300}, 21.0F)}}));
    simulator.faults().clear();
    EXPECT_FALSE(stager->is_loaded());
    EXPECT_EQ(stager->counters().forced_releases, 1);
    EXPECT_EQ(value(1), 21);
    stager->load();
    EXPECT_EQ(value(1), 21);
    stager->offload();
  }
}

}  // namespace
}  // namespace offstage
