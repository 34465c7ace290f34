// SPDX-License-Identifier: Apache-2.0
// An allocator that rounds up to powers of two, as LibTorch's own do: what it takes is told.
#include <offstage/device/device_context.hpp>
#include <offstage/device/host_allocator_memory.hpp>
#include <offstage/staging/pinned_module_stager.hpp>
#include <offstage/testing/recording_sink.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/ATen.h>

#include <gmock/gmock.h>

namespace offstage {
namespace {

using ::testing::HasSubstr;

class HostAllocatorMemoryRoundingTest : public ::testing::Test {
 protected:
  HostAllocatorMemoryRoundingTest() { simulator.reset(); }

  std::shared_ptr<DeviceContext> context() {
    return DeviceContext::create(simulator.device(), {.sink = sink, .pinned_ledger = ledger});
  }
  /// 5 and 2 pages, each in a chunk of its own.
  static std::vector<NamedTensor> two_tensors() {
    return {{"large", at::ones({5 * 4096}, at::kByte)}, {"small", at::ones({2 * 4096}, at::kByte)}};
  }

  testing::Simulator& simulator = testing::Simulator::install({.host_rounding = true});
  std::shared_ptr<testing::RecordingSink> sink = std::make_shared<testing::RecordingSink>();
  std::shared_ptr<PinnedLedger> ledger = std::make_shared<PinnedLedger>();
};

TEST_F(HostAllocatorMemoryRoundingTest, ToldIsThePowerOfTwoThatIsTaken) {
  const auto before = simulator.pinned_bytes();
  HostAllocatorMemory memory(simulator.device().type());
  EXPECT_EQ(simulator.pinned_bytes(), before) << "what it found out with is given back";
  EXPECT_EQ(memory.taken_bytes(5 * 4096), 8 * 4096);
  EXPECT_EQ(memory.taken_bytes(8 * 4096), 8 * 4096);
  EXPECT_EQ(memory.slice_bytes_max(), 0) << "it is pinned as a whole";
  void* const data = memory.allocate(5 * 4096);
  EXPECT_EQ(simulator.pinned_bytes() - before, 8 * 4096);
  memory.free(data, 5 * 4096);
}

TEST_F(HostAllocatorMemoryRoundingTest, AStagerShowsWhatItsMastersTake) {
  const PinnedModuleStager stager(two_tensors(), context(), {.chunk_bytes_max = 4096});
  EXPECT_EQ(stager.bytes(), 7 * 4096);
  EXPECT_EQ(stager.pinned_bytes(), 7 * 4096);
  EXPECT_EQ(stager.host_bytes(), 10 * 4096);
  EXPECT_EQ(ledger->pinned_bytes(), 10 * 4096);
}

TEST_F(HostAllocatorMemoryRoundingTest, ABudgetCountsWhatIsTakenAndTheRestIsPageable) {
  const auto before = simulator.pinned_bytes();
  const PinnedModuleStager stager(
      two_tensors(), context(),
      {.pinned_budget = PinnedBudget::of_bytes(9 * 4096), .chunk_bytes_max = 4096});
  EXPECT_EQ(stager.pinned_bytes(), 5 * 4096);
  EXPECT_EQ(simulator.pinned_bytes() - before, 8 * 4096) << "the rest is not from the allocator";
  EXPECT_EQ(stager.host_bytes(), 10 * 4096);
  ASSERT_EQ(sink->count(EventKind::kPinningFailed), 1U);
  EXPECT_EQ(sink->events()[0].message,
            "pinning takes 40960 bytes, allowed are 36864 (a budget of 36864 bytes, 0 of them in "
            "use)");
  EXPECT_EQ(sink->events()[0].bytes, 2 * 4096);
}

}  // namespace
}  // namespace offstage
