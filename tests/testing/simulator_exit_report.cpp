// SPDX-License-Identifier: Apache-2.0
//
// Ends after a race that was found at a free, without a synchronisation. Must print it.
#include <offstage/testing/simulator.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

int main() {
  auto& simulator = offstage::testing::Simulator::install();
  at::Tensor x = at::ones({1000}, at::TensorOptions().device(simulator.device()));
  simulator.synchronize();
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  const c10::StreamGuard other(guard.getNewStream(simulator.device()));
  const at::Tensor sum = x.add(1);
  x.reset();
  return 0;
}
