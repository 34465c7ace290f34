// SPDX-License-Identifier: Apache-2.0
//
// Exits with work queued, a stream held and tensors that die after main: must end quietly.
#include <offstage/testing/simulator.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdio>
#include <memory>

namespace {

at::Tensor before_install;  // Constructed before install: destroyed after the workers ended.
at::Tensor held_result;
std::unique_ptr<offstage::testing::StreamHold> hold;

// Its destructor runs after everything above was destroyed.
struct LastWord {
  ~LastWord() { std::puts("ended"); }
};

}  // namespace

int main() {
  static const LastWord last_word;
  auto& simulator = offstage::testing::Simulator::install();
  const auto options = at::TensorOptions().device(simulator.device());
  before_install = at::ones({1000}, options);
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  hold = std::make_unique<offstage::testing::StreamHold>(
      simulator.hold(guard.getDefaultStream(simulator.device())));
  held_result = before_install.add(1);
  static const at::Tensor after_install = at::ones({1000}, options);
  return 0;
}
