// SPDX-License-Identifier: Apache-2.0
// Weights that the body writes on the device.
#include "edits_fixture.hpp"

#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <torch/nn/modules/batchnorm.h>

namespace offstage {
namespace {

using testing::Fault;
using testing::FaultPoint;
using testing::FaultWhen;
using ::testing::HasSubstr;

class PinnedModuleStagerEditsTest : public EditsTest {};

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

TEST_F(PinnedModuleStagerEditsTest, AnEditThatCannotBeWrittenBackIsReportedAsLost) {
  const auto stager = make(EditPolicy::kWriteBack);
  stager->load();
  edit();
  simulator.faults().fail(FaultPoint::kCopy, FaultWhen::nth(1), Fault::kAccelerator);
  EXPECT_ANY_THROW(stager->offload());
  EXPECT_EQ(stager->counters().edits_lost, 1);
  EXPECT_EQ(stager->counters().edits_kept, 0);
  EXPECT_EQ(count_events(EventKind::kEditLost), 1U);
}

TEST_F(PinnedModuleStagerEditsTest, TheEndOfAStagerKeepsOrReportsEditsLikeAnOffload) {
  for (const EditPolicy edits :
       {EditPolicy::kDetect, EditPolicy::kReject, EditPolicy::kWriteBack}) {
    SCOPED_TRACE(to_string(edits));
    tensors = numbered_tensors(3, 300);
    const auto lost = count_events(EventKind::kEditLost);
    auto stager = make(edits);
    stager->load();
    edit();
    stager.reset();
    const bool kept = edits == EditPolicy::kWriteBack;
    EXPECT_EQ(value(1), kept ? 11 : 1);
    EXPECT_EQ(count_events(EventKind::kEditLost) - lost, kept ? 0U : 1U);
  }
}

// Batch norm writes its running statistics without raising their versions.
TEST_F(PinnedModuleStagerEditsTest, RunningStatisticsAreEditsAlthoughTheirVersionsStay) {
  const auto mean_after = [&](EditPolicy edits) {
    torch::nn::BatchNorm1d norm(3);
    const auto stager = stage(named_tensors(norm), {.edits = edits});
    stager->load();
    const auto version = norm->running_mean._version();
    norm->forward(at::full({4, 3}, 10.0F, device()));
    EXPECT_EQ(norm->running_mean._version(), version) << "else this test shows nothing";
    EXPECT_EQ(norm->running_mean.cpu()[0].item<float>(), 1);
    if (edits == EditPolicy::kReject) {
      EXPECT_THROW(stager->offload(), StateError);
    } else {
      stager->offload();
    }
    // The statistics, and the number of batches.
    EXPECT_EQ(stager->counters().edits_lost, edits == EditPolicy::kWriteBack ? 0 : 3);
    return norm->running_mean[0].item<float>();
  };
  EXPECT_EQ(mean_after(EditPolicy::kDetect), 0);
  EXPECT_EQ(mean_after(EditPolicy::kReject), 0);
  EXPECT_EQ(mean_after(EditPolicy::kWriteBack), 1);
}

TEST_F(PinnedModuleStagerEditsTest, WhatCannotBeLookedAtIsReportedAsLost) {
  {
    const c10::InferenceMode mode;
    tensors = numbered_tensors(3, 300);
  }
  const auto stager = make(EditPolicy::kDetect);
  stager->load();
  simulator.faults().fail(FaultPoint::kCopy, FaultWhen::nth(2), Fault::kAccelerator);
  EXPECT_ANY_THROW(stager->offload());
  EXPECT_EQ(stager->counters().edits_lost, 2) << "one was looked at, and is unchanged";
}

TEST_F(PinnedModuleStagerEditsTest, AWriteBackOfAReplacedTensorNamesItAndCopiesNothing) {
  const auto stager = make(EditPolicy::kIgnore);
  stager->load();
  edit();
  tensors[2].tensor.set_data(tensors[2].tensor.clone());
  EXPECT_THROW(stager->write_back(), StateError);
  EXPECT_THROW(stager->offload(), StateError);
  EXPECT_EQ(value(1), 1);
  tensors.clear();
}

}  // namespace
}  // namespace offstage
