// SPDX-License-Identifier: Apache-2.0
#include <offstage/testing/cost_model.hpp>

#include <gtest/gtest.h>

namespace offstage::testing {
namespace {

using std::chrono::nanoseconds;

TEST(CostModelTest, AKernelTakesItsLatencyAndTheLongerOfBytesAndFlops) {
  CostModel costs;
  costs.kernel_latency = nanoseconds(100);
  costs.memory_bandwidth = 1000;
  costs.flops_per_microsecond = 2000;
  EXPECT_EQ(costs.cost_of({.name = "aten::add", .bytes = 5000, .flops = 0}), nanoseconds(5100));
  EXPECT_EQ(costs.cost_of({.name = "aten::mm", .bytes = 5000, .flops = 40'000}),
            nanoseconds(20'100));
}

TEST(CostModelTest, AnOperationCanHaveACostOfItsOwn) {
  CostModel costs;
  costs.kernels["aten::mm"] = [](const KernelWork& work) { return nanoseconds(work.flops); };
  EXPECT_EQ(costs.cost_of({.name = "aten::mm", .bytes = 1, .flops = 42}), nanoseconds(42));
}

TEST(CostModelTest, LargeCopiesDoNotOverflow) {
  CostModel costs;
  costs.copy_latency = nanoseconds(7);
  EXPECT_EQ(costs.copy_cost(std::int64_t{1} << 50, 1 << 20),
            nanoseconds((std::int64_t{1} << 30) * 1000 + 7));
  EXPECT_EQ(costs.copy_cost(1, 3), nanoseconds(333 + 7));
}

}  // namespace
}  // namespace offstage::testing
