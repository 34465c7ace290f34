// SPDX-License-Identifier: Apache-2.0
// What a stager does when several threads call it at once: one thing after another.
#include "staging_fixture.hpp"

#include <latch>
#include <thread>

namespace offstage {
namespace {

class PinnedModuleStagerThreadsTest : public StagingTest {};

TEST_F(PinnedModuleStagerThreadsTest, ConcurrentLoadsAndOffloadsAreOneStepEach) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 100;
  const auto tensors = numbered_tensors(8, 64);
  const auto stager = stage(tensors, {.chunk_bytes_max = 512});
  stager->set_cache(retaining_cache());
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      for (int round = 0; round < kRounds; ++round) {
        stager->load();
        stager->offload();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const StagerCounters own = stager->counters();
  EXPECT_FALSE(stager->is_loaded());
  EXPECT_EQ(own.loads, own.offloads);
  EXPECT_EQ(own.copies, 8 * own.loads);
  EXPECT_EQ(own.forced_releases, 0);
  EXPECT_EQ(simulator.memory().allocated, 0);
  expect_numbered(tensors);
}

}  // namespace
}  // namespace offstage
