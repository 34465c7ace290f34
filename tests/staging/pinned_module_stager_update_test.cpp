// SPDX-License-Identifier: Apache-2.0
// Tensors that get new values by a call, in the masters and on the device.
#include "edits_fixture.hpp"

#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>

namespace offstage {
namespace {

using testing::Fault;
using testing::FaultPoint;
using testing::FaultWhen;
using ::testing::HasSubstr;

class PinnedModuleStagerUpdateTest : public EditsTest {};

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateWhileOffloadedArrivesOnTheDeviceAtTheNextLoad) {
  const auto stager = make(EditPolicy::kReject);
  stager->update({{"t1", at::full({300}, 21.0F)}});
  EXPECT_EQ(value(1), 21);
  stager->load();
  EXPECT_EQ(value(1), 21);
  stager->offload();
  EXPECT_EQ(value(1), 21);
}

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateWhileLoadedIsSeenByLaterWorkOnEveryUserAndKept) {
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

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateForgetsNoEditOfAnotherTensor) {
  const auto stager = make(EditPolicy::kWriteBack);
  stager->load();
  edit();
  stager->update({{"t2", at::full({300}, 22.0F)}});
  stager->offload();
  EXPECT_EQ(value(1), 11);
  EXPECT_EQ(value(2), 22);
}

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateTakesItsValueFromAnyDeviceAndAnyStrides) {
  const at::Tensor weight = at::zeros({4, 3}).t();
  const auto stager = stage({{"weight", weight}});
  const at::Tensor value = at::arange(12).to(at::kFloat).view({3, 4});
  stager->update({{"weight", value.to(device())}});
  EXPECT_TRUE(at::equal(weight, value));
  EXPECT_EQ(weight.strides(), at::IntArrayRef({1, 3}));
}

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateOfOneOfTwoTiedTensorsIsSeenByBothAndByEitherName) {
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

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateWaitsForCopiesThatStillReadTheMasters) {
  const auto stager = make(EditPolicy::kIgnore);
  stager->load();
  const at::Tensor old = tensors[1].tensor + 0;
  stager->offload();
  const auto before = counters();
  stager->update({{"t1", at::full({300}, 21.0F)}});
  EXPECT_EQ((counters() - before).host_waits, 1);
  EXPECT_EQ(old.cpu()[299].item<float>(), 1);
}

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateRaisesTheVersionOfTheTensor) {
  const auto stager = make(EditPolicy::kIgnore);
  const auto before = tensors[1].tensor._version();
  stager->update({{"t1", at::full({300}, 21.0F)}});
  EXPECT_GT(tensors[1].tensor._version(), before);
}

TEST_F(PinnedModuleStagerUpdateTest, InferenceTensorsAreUpdatedOutsideAndInsideInferenceMode) {
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

TEST_F(PinnedModuleStagerUpdateTest, ValuesMayBeTheTensorsOfTheComponentItself) {
  for (const bool loaded : {false, true}) {
    SCOPED_TRACE(loaded ? "loaded" : "offloaded");
    tensors = numbered_tensors(3, 300);
    const auto stager = make(EditPolicy::kIgnore);
    if (loaded) stager->load();
    stager->update({{"t1", tensors[2].tensor}, {"t2", tensors[1].tensor}});
    EXPECT_EQ(value(1), 2);
    EXPECT_EQ(value(2), 1);
    stager->update({{"t1", tensors[1].tensor.flip(0)}, {"t2", tensors[2].tensor}});
    stager->offload();
    EXPECT_EQ(value(1), 2);
    EXPECT_EQ(value(2), 1);
  }
}

TEST_F(PinnedModuleStagerUpdateTest, AValueMayBeAShiftedViewOfTheVeryMaster) {
  const at::Tensor line = at::arange(12).to(at::kFloat);
  const at::Tensor head = line.narrow(0, 0, 8);
  const auto stager = stage({{"line", line}, {"head", head}});
  stager->update({{"head", line.narrow(0, 4, 8)}});
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(line[i].item<float>(), static_cast<float>(i < 8 ? i + 4 : i)) << i;
  }
}

/// Two tensors side by side in one storage, and two that take turns in another.
struct Neighbours {
  at::Tensor flat = at::zeros({600});
  at::Tensor left = flat.narrow(0, 0, 300);
  at::Tensor right = flat.narrow(0, 300, 300);
  at::Tensor table = at::zeros({4, 2});
  at::Tensor even = table.select(1, 0);
  at::Tensor odd = table.select(1, 1);
  std::vector<NamedTensor> tensors = {
      {"left", left}, {"right", right}, {"even", even}, {"odd", odd}};
};

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateCopiesTheBytesOfItsTensorsAndNoOthers) {
  Neighbours all;
  const auto stager = stage(all.tensors);
  stager->load();
  all.left.fill_(1);
  const auto before = counters();
  stager->update({{"right", at::full({300}, 7.0F)}});
  EXPECT_EQ((counters() - before).copies_h2d, 1);
  EXPECT_EQ((counters() - before).bytes_h2d, 1200);
  EXPECT_EQ(all.left.cpu()[299].item<float>(), 1) << "written on the device, and not updated";
  EXPECT_EQ(all.right.cpu()[0].item<float>(), 7);
  const auto again = counters();
  stager->update({{"right", at::full({300}, 8.0F)}, {"left", at::full({300}, 9.0F)}});
  EXPECT_EQ((counters() - again).copies_h2d, 1) << "side by side: one copy";
  EXPECT_EQ(all.left.cpu()[299].item<float>(), 9);
  EXPECT_EQ(all.right.cpu()[0].item<float>(), 8);
}

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateWritesBackTheEditsOfItsNeighboursFirst) {
  Neighbours all;
  const auto stager = stage(all.tensors, {.edits = EditPolicy::kWriteBack});
  stager->load();
  all.left.fill_(1);
  all.even.fill_(2);
  stager->update({{"right", at::full({300}, 7.0F)}, {"odd", at::full({4}, 8.0F)}});
  EXPECT_EQ(stager->counters().edits_kept, 2);
  EXPECT_EQ(all.even.cpu()[3].item<float>(), 2);
  stager->offload();
  EXPECT_EQ(stager->counters().edits_kept, 2) << "nothing was written since";
  EXPECT_EQ(all.left[299].item<float>(), 1);
  EXPECT_EQ(all.right[299].item<float>(), 7);
  EXPECT_EQ(all.even[3].item<float>(), 2);
  EXPECT_EQ(all.odd[3].item<float>(), 8);
}

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateHidesNoEditOfATensorBesideIt) {
  at::Tensor flat = at::zeros({600});
  at::Tensor left = at::Tensor(flat.narrow(0, 0, 300)).detach();
  const auto stager = stage({{"left", left}, {"right", flat.narrow(0, 300, 300).detach()}},
                            {.edits = EditPolicy::kDetect});
  stager->load();
  left.fill_(1);
  stager->update({{"right", at::full({300}, 7.0F)}});
  stager->offload();
  EXPECT_EQ(stager->counters().edits_lost, 1);
}

TEST_F(PinnedModuleStagerUpdateTest, AnUpdatedTensorCountsAsUnedited) {
  const auto stager = make(EditPolicy::kDetect);
  stager->load();
  edit();
  stager->update({{"t1", at::full({300}, 21.0F)}});
  stager->offload();
  EXPECT_EQ(stager->counters().edits_lost, 0) << "the update has replaced the edit";
  EXPECT_EQ(value(1), 21);
}

TEST_F(PinnedModuleStagerUpdateTest, AWrongUpdateNamesWhatWasExpectedAndChangesNothing) {
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
  EXPECT_THAT(refused("t2", at::zeros({300}, at::kMeta)), HasSubstr("is a meta tensor"));
  EXPECT_THAT(refused("t2", at::zeros({300}).to_sparse()), HasSubstr("is not strided"));
  EXPECT_THAT(refused("t1", at::zeros({300})), HasSubstr("is the second for one tensor"));
  EXPECT_THAT(refused("wide", at::zeros({2, 5})), HasSubstr("share memory"));
  EXPECT_EQ(value(1), 1);
}

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateThatCannotReachTheDeviceOffloadsWithTheNewValues) {
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

TEST_F(PinnedModuleStagerUpdateTest, AFailedUpdateKeepsOrReportsWhatElseWasWritten) {
  for (const EditPolicy edits :
       {EditPolicy::kDetect, EditPolicy::kReject, EditPolicy::kWriteBack}) {
    SCOPED_TRACE(to_string(edits));
    tensors = numbered_tensors(3, 300);
    const auto stager = make(edits);
    stager->load();
    edit();
    simulator.faults().fail(FaultPoint::kCopy, FaultWhen::nth(1), Fault::kAccelerator);
    EXPECT_ANY_THROW(stager->update({{"t2", at::full({300}, 22.0F)}}));
    EXPECT_FALSE(stager->is_loaded());
    const bool kept = edits == EditPolicy::kWriteBack;
    EXPECT_EQ(value(1), kept ? 11 : 1);
    EXPECT_EQ(value(2), 22);
    EXPECT_EQ(stager->counters().edits_kept, kept ? 1 : 0);
    EXPECT_EQ(stager->counters().edits_lost, kept ? 0 : 1);
  }
}

TEST_F(PinnedModuleStagerUpdateTest, AFailedUpdateOfATensorWithoutAVersionKeepsTheNewValue) {
  {
    const c10::InferenceMode mode;
    tensors = numbered_tensors(3, 300);
  }
  const auto stager = make(EditPolicy::kWriteBack);
  stager->load();
  simulator.faults().fail(FaultPoint::kCopy, FaultWhen::nth(2), Fault::kAccelerator);
  EXPECT_ANY_THROW(stager->update({{"t2", at::full({300}, 22.0F)}}));
  EXPECT_FALSE(stager->is_loaded());
  EXPECT_EQ(value(2), 22) << "the old value on the device must not be written back over it";
}

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateOfAReplacedTensorNamesItAndChangesNothing) {
  for (const bool loaded : {false, true}) {
    tensors = numbered_tensors(3, 300);
    const auto stager = make(EditPolicy::kIgnore);
    if (loaded) stager->load();
    tensors[1].tensor.set_data(at::full({300}, 5.0F, tensors[1].tensor.options()));
    try {
      stager->update({{"t0", at::full({300}, 20.0F)}, {"t1", at::full({300}, 21.0F)}});
      FAIL() << "not noticed";
    } catch (const StateError& error) {
      EXPECT_THAT(error.what(), HasSubstr("update: tensor 't1' was replaced"));
    }
    EXPECT_EQ(value(0), 0);
  }
  tensors.clear();
}

TEST_F(PinnedModuleStagerUpdateTest, APathOfTwoTensorsIsAmbiguous) {
  tensors.push_back({"t1", at::full({300}, 4.0F)});
  const auto stager = make(EditPolicy::kIgnore);
  try {
    stager->update({{"t1", at::full({300}, 21.0F)}});
    FAIL() << "one of them was chosen";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 tensors are called 't1'"));
  }
}

TEST_F(PinnedModuleStagerUpdateTest, TensorsWhoseElementsShareMemoryAreNotUpdated) {
  const at::Tensor windows = at::zeros({6}).as_strided({4, 3}, {1, 1});
  const auto stager = stage({{"windows", windows}});
  EXPECT_THROW(stager->update({{"windows", at::ones({4, 3})}}), InvalidArgument);
  EXPECT_EQ(windows.sum().item<float>(), 0);
}

TEST_F(PinnedModuleStagerUpdateTest, AnUpdateOfAnEmptyTensorIsNoEditOfTheOneItIsAViewOf) {
  const at::Tensor base = at::zeros({8});
  const auto stager =
      stage({{"base", base}, {"none", base.narrow(0, 4, 0)}}, {.edits = EditPolicy::kReject});
  stager->load();
  stager->update({{"none", at::zeros({0})}});
  EXPECT_NO_THROW(stager->offload());
}

}  // namespace
}  // namespace offstage
