// SPDX-License-Identifier: Apache-2.0
#include "../base/cancelled_thread.hpp"
#include "stageable_doubles.hpp"

#include <offstage/components/component_scope.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <thread>
#include <vector>

namespace offstage {
namespace {

class ComponentScopeThreadsTest : public ComponentFixture {
 protected:
  Component component{"text_encoder", stager, {}, cache, sink};
};

TEST_F(ComponentScopeThreadsTest, TwoRequestsAtOnceAreOneLoadAndOneOffload) {
  std::latch both_inside{2};
  const auto request = [&] { run(component, [&] { both_inside.arrive_and_wait(); }); };
  std::thread first(request);
  std::thread second(request);
  first.join();
  second.join();
  EXPECT_EQ(stager->loads, 2) << "each stream waits for the load";
  EXPECT_EQ(stager->offloads, 1);
  EXPECT_EQ(stager->live_bytes(), 0);
}

TEST_F(ComponentScopeThreadsTest, NoBodyEverRunsWithoutItsComponent) {
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 100; ++n) {
        try {
          run(component, [&] {
            if (!component.loaded()) ++failures;
            if ((n + i) % 7 == 0) throw std::runtime_error("body");
          });
        } catch (const std::runtime_error&) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(component.holders(), 0);
  EXPECT_EQ(stager->live_bytes(), 0);
  EXPECT_EQ(forced_releases(), 57);  // Of n + i in i .. i + 99: 15 + 14 + 14 + 14 multiples of 7.
}

TEST_F(ComponentScopeThreadsTest, ACancelledBodyTakesTheFailurePathAndTheThreadEnds) {
  run_in_cancelled_thread([&] { run(component, [] { cancellation_point(); }); });
  EXPECT_EQ(stager->offloads, 1);
  EXPECT_EQ(component.holders(), 0);
  EXPECT_EQ(forced_releases(), 1);
}

TEST_F(ComponentScopeThreadsTest, ACancelledScopeOffloadsAndTheThreadEnds) {
  run_in_cancelled_thread([&] {
    const ComponentScope scope(component);
    cancellation_point();
  });
  EXPECT_EQ(stager->offloads, 1);
  EXPECT_EQ(component.holders(), 0);
}

/// A stageable whose moves are cancellation points, as calls of a driver are.
class CancellableStageable final : public Stageable {
 public:
  void load() override {
    ++loads;
    if (cancel_in_load) cancellation_point();
    if (fail_load) throw std::runtime_error("load");
  }
  void offload() override {
    ++offloads;
    cancellation_point();
    ++finished_offloads;
  }
  bool handles_own_failures() const noexcept override { return false; }
  std::int64_t bytes() const noexcept override { return 1; }
  c10::Device device() const noexcept override { return kTestDevice; }
  bool cancel_in_load = false;
  bool fail_load = false;
  int loads = 0;
  int offloads = 0;
  int finished_offloads = 0;
};

class CancellableScopeTest : public ComponentScopeThreadsTest {
 protected:
  const std::shared_ptr<CancellableStageable> moved = std::make_shared<CancellableStageable>();
  Component cancellable{"text_encoder", moved, {}, cache, sink};
};

TEST_F(CancellableScopeTest, ACancelledLoadIsCleanedUp) {
  moved->cancel_in_load = true;
  run_in_cancelled_thread([&] { run(cancellable, [] {}); });
  EXPECT_EQ(moved->finished_offloads, 1);
  EXPECT_EQ(cancellable.holders(), 0);
  EXPECT_EQ(forced_releases(), 1);
}

TEST_F(CancellableScopeTest, AFailedLoadIsCleanedUpBeforeTheCancellationIsActedUpon) {
  moved->fail_load = true;
  run_in_cancelled_thread([&] { EXPECT_THROW(run(cancellable, [] {}), std::runtime_error); });
  EXPECT_EQ(moved->finished_offloads, 1);
  EXPECT_EQ(forced_releases(), 1);
}

TEST_F(CancellableScopeTest, ACancelledOffloadLeavesAfterOneForcedRelease) {
  run_in_cancelled_thread([&] { run(cancellable, [] {}); });
  EXPECT_EQ(moved->offloads, 1);
  EXPECT_EQ(moved->finished_offloads, 0);
  EXPECT_EQ(cancellable.holders(), 0);
  EXPECT_EQ(forced_releases(), 1);
}

TEST_F(CancellableScopeTest, ADestructorFinishesItsOffloadBeforeTheCancellationIsActedUpon) {
  run_in_cancelled_thread([&] {
    { const ComponentScope scope(cancellable); }
  });
  EXPECT_EQ(moved->finished_offloads, 1);
  EXPECT_EQ(forced_releases(), 0);
}

TEST_F(CancellableScopeTest, AFailurePathFinishesBeforeTheCancellationIsActedUpon) {
  run_in_cancelled_thread([&] { EXPECT_THROW(run(cancellable, [] { throw 42; }), int); });
  EXPECT_EQ(moved->finished_offloads, 1);
  EXPECT_EQ(forced_releases(), 1);
}

}  // namespace
}  // namespace offstage
