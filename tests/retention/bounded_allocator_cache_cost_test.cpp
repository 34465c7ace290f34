// SPDX-License-Identifier: Apache-2.0
// What a decision that keeps the cache costs on a device whose figures come from LibTorch. A
// program of its own: the plug-in has a name that no short string holds.
#include "../support/allocation_counter.hpp"

#include <offstage/device/generic_telemetry.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>
#include <offstage/retention/learned_retention.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/ops/empty.h>

#include <gtest/gtest.h>

#include <memory>

namespace offstage {
namespace {

class RetainingDecisionTest : public ::testing::TestWithParam<bool> {
 protected:
  static std::shared_ptr<const RetentionPolicy> policy() {
    if (GetParam()) return std::make_shared<LearnedRetention>();
    return std::make_shared<FixedRetention>();
  }
};

TEST_P(RetainingDecisionTest, AllocatesNothingAndCallsNothingThatWaits) {
  auto& simulator = testing::Simulator::install({.name = "accelerator_of_the_tests"});
  const auto device = simulator.device();
  BoundedAllocatorCache cache(device, std::make_shared<GenericTelemetry>(), policy());
  const auto cache_eight_mebibytes = [&] {
    static_cast<void>(at::empty({8 << 20}, at::TensorOptions().dtype(at::kByte).device(device)));
  };
  cache_eight_mebibytes();
  cache.release_if_needed();  // The cold start of the learned policy.
  cache_eight_mebibytes();
  ASSERT_FALSE(cache.release_if_needed());

  const auto allocations = allocations_of_this_thread();
  ASSERT_GT(allocations, 0) << "allocations are not counted";
  const auto before = simulator.counters();
  for (int i = 0; i < 100; ++i) cache.release_if_needed();
  EXPECT_EQ(allocations_of_this_thread() - allocations, 0);
  EXPECT_EQ(simulator.counters() - before, testing::SimulatorCounters{}) << "no call at all";
  EXPECT_GT(cache.last_decision()->figures->cached(), 0);
  simulator.reset();
}

INSTANTIATE_TEST_SUITE_P(Policies, RetainingDecisionTest, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Learned" : "Fixed"; });

}  // namespace
}  // namespace offstage
