// SPDX-License-Identifier: Apache-2.0
// The memory of this process over many cycles, as the system counts it. Not under the sanitizers,
// which keep freed memory.
#include "staging_fixture.hpp"

#include <fstream>

namespace offstage {
namespace {

/// Resident memory of this process, in bytes.
std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0;
  statm >> pages >> pages;
  return pages * host_page_bytes();
}

using PinnedModuleStagerMemoryTest = StagingTest;

// case C34
TEST_F(PinnedModuleStagerMemoryTest, TwoHundredCyclesKeepTheMastersAndAllocateNoHostMemory) {
  const auto memory = std::make_shared<RefusingHostMemory>(simulator.host_memory(), 1);
  context = DeviceContext::create(device(), {.host_memory = memory, .telemetry = telemetry});
  const auto tensors = numbered_tensors(20, 100);
  const auto stager = stage(tensors);
  stager->set_cache(retaining_cache());
  const void* master = tensors[7].tensor.data_ptr();
  const auto segments = simulator.memory().segments;
  stager->load();
  stager->offload();
  const std::int64_t resident = resident_bytes();
  for (int cycle = 0; cycle < 200; ++cycle) {
    stager->load();
    stager->offload();
    ASSERT_EQ(tensors[7].tensor.data_ptr(), master);
  }
  EXPECT_EQ(memory->live, 1);
  EXPECT_EQ(simulator.memory().segments, segments + 1);
  EXPECT_LT(resident_bytes() - resident, 8 * kMiB);
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerMemoryTest, AHundredThousandCyclesLeaveEverythingAsItWas) {
  simulator.set_race_action(testing::RaceAction::kIgnore);  // It has nothing to say here.
  context = DeviceContext::create(device(),
                                  {.host_memory = simulator.host_memory(), .telemetry = telemetry});
  sink = nullptr;  // One that records every event would grow.
  const auto tensors = numbered_tensors(4, 64);
  const auto stager = stage(tensors, {.edits = EditPolicy::kDetect});
  stager->set_cache(retaining_cache());
  const auto cycles = [&stager](int count) {
    for (int cycle = 0; cycle < count; ++cycle) {
      stager->load();
      stager->offload();
    }
  };
  cycles(1000);
  const auto memory = simulator.memory();
  const auto pinned = simulator.pinned_bytes();
  const auto resident = resident_bytes();
  const auto handles = tensors[0].tensor.use_count();
  cycles(99000);
  simulator.synchronize();
  EXPECT_EQ(simulator.memory().reserved, memory.reserved);
  EXPECT_EQ(simulator.memory().allocated, 0);
  EXPECT_EQ(simulator.pinned_bytes(), pinned);
  EXPECT_EQ(tensors[0].tensor.use_count(), handles);
  EXPECT_LT(resident_bytes() - resident, 8 * kMiB);
  EXPECT_EQ(stager->counters().loads, 100000);
  expect_numbered(tensors);
}

}  // namespace
}  // namespace offstage
