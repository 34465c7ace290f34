// SPDX-License-Identifier: Apache-2.0
// Masters that are written in host memory by somebody who should not.
#include "staging_fixture.hpp"

namespace offstage {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PinnedModuleStagerChecksumTest : public StagingTest {
 protected:
  std::vector<NamedTensor> tensors = numbered_tensors(3, 300);
};

TEST_F(PinnedModuleStagerChecksumTest, AMasterThatSomebodyElseWroteIsFoundByItsChecksum) {
  const auto stager = stage(tensors, {.checksum_masters = true});
  EXPECT_THAT(stager->corrupted_masters(), IsEmpty());
  static_cast<float*>(tensors[2].tensor.mutable_data_ptr())[150] += 1;
  EXPECT_THAT(stager->corrupted_masters(), ElementsAre("t2"));
}

TEST_F(PinnedModuleStagerChecksumTest, WritesThroughTheStagerAreNoCorruption) {
  const auto stager = stage(tensors, {.edits = EditPolicy::kWriteBack, .checksum_masters = true});
  stager->update({{"t0", at::ones({300})}});
  EXPECT_THAT(stager->corrupted_masters(), IsEmpty());
  stager->load();
  tensors[1].tensor.add_(10);
  stager->write_back();
  EXPECT_THAT(stager->corrupted_masters(), IsEmpty());
  tensors[1].tensor.add_(10);
  stager->offload();
  EXPECT_THAT(stager->corrupted_masters(), IsEmpty());
  EXPECT_EQ(tensors[1].tensor[7].item<float>(), 21);
}

TEST_F(PinnedModuleStagerChecksumTest, AskingForCorruptionWithoutChecksumsIsAnError) {
  EXPECT_THROW(static_cast<void>(stage(tensors)->corrupted_masters()), StateError);
}

TEST_F(PinnedModuleStagerChecksumTest, AnUpdateHidesNoCorruptionBesideIt) {
  const at::Tensor flat = at::zeros({600});
  const at::Tensor left = flat.narrow(0, 0, 300);
  const auto stager =
      stage({{"left", left}, {"right", flat.narrow(0, 300, 300)}}, {.checksum_masters = true});
  static_cast<float*>(left.mutable_data_ptr())[7] = 1;
  stager->update({{"right", at::ones({300})}});
  EXPECT_THAT(stager->corrupted_masters(), ElementsAre("left, right")) << "one storage";
}

}  // namespace
}  // namespace offstage
