// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "staging_fixture.hpp"

#include <memory>
#include <vector>

namespace offstage {

/// A component whose second tensor a body writes on the device.
class EditsTest : public StagingTest {
 protected:
  /// Three tensors of one storage each.
  std::vector<NamedTensor> tensors = numbered_tensors(3, 300);

  std::shared_ptr<PinnedModuleStager> make(EditPolicy edits) {
    return stage(tensors, {.name = "vae", .edits = edits});
  }
  void edit() { tensors[1].tensor.add_(10); }
  float value(std::size_t index) const { return tensors[index].tensor.cpu()[7].item<float>(); }
};

}  // namespace offstage
