// SPDX-License-Identifier: Apache-2.0
#include "simulator_fixture.hpp"

#include <ATen/ATen.h>

namespace offstage::testing {
namespace {

using SimulatorKernelsTest = SimulatorTest;

TEST_F(SimulatorKernelsTest, LinearIsThatOfTheCpu) {
  const at::Tensor x = at::randn({3, 5});
  const at::Tensor w = at::randn({7, 5});
  const at::Tensor b = at::randn({7});
  const at::Tensor expected = at::linear(x, w, b);
  const c10::Device sim = simulator_.device();
  const at::Tensor y = at::linear(x.to(sim), w.to(sim), b.to(sim));
  EXPECT_EQ(y.device(), sim);
  EXPECT_TRUE(at::equal(y.to(at::kCPU), expected));
}

}  // namespace
}  // namespace offstage::testing
