// SPDX-License-Identifier: Apache-2.0
//
// Ends with work queued, a stream held and tensors that die after main. Must end by itself, with 0.
#include <offstage/staging/pinned_module_stager.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <vector>

namespace {

// Constructed before install: destroyed after the workers ended.
at::Tensor before_install;
at::Tensor held_result;
std::unique_ptr<offstage::testing::StreamHold> hold;
at::Tensor weight;
std::unique_ptr<offstage::PinnedModuleStager> loaded;  // case C49

}  // namespace

int main() {
  auto& simulator = offstage::testing::Simulator::install();
  const auto options = at::TensorOptions().device(simulator.device());
  before_install = at::ones({1000}, options);
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  hold = std::make_unique<offstage::testing::StreamHold>(
      simulator.hold(guard.getDefaultStream(simulator.device())));
  held_result = before_install.add(1);
  weight = at::ones({1000});
  loaded = std::make_unique<offstage::PinnedModuleStager>(
      std::vector<offstage::NamedTensor>{{"weight", weight}},
      offstage::DeviceContext::create(simulator.device()));
  loaded->load();
  static const at::Tensor after_install = at::ones({1000}, options);
  return 0;
}
