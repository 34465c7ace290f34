// SPDX-License-Identifier: Apache-2.0
// Memory that is given back too early: the program lives to see the report.
#include "simulator_fixture.hpp"

#include <offstage/base/bytes.hpp>
#include <offstage/base/error.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <string>

namespace offstage::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SimulatorLifetimesTest : public SimulatorTest {
 protected:
  at::Tensor ones(std::int64_t count) const {
    return at::ones({count}, at::TensorOptions().device(simulator_.device()));
  }

  /// A tensor over the same bytes, which keeps nothing alive.
  at::Tensor alias(const at::Tensor& tensor) const {
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.options());
  }

  std::string error_of(const std::function<void()>& body) const {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "none";
  }

  const c10::Stream other_ = new_stream();
};

TEST_F(SimulatorLifetimesTest, ASegmentIsReleasedUnderARacingReaderAndTheRaceIsThrown) {
  at::Tensor x = ones(4 * kMiB);
  simulator_.synchronize();
  StreamHold hold = simulator_.hold(other_);
  at::Tensor sum;
  {
    const c10::StreamGuard guard(other_);
    sum = x.add(1);
  }
  x.reset();
  simulator_.empty_cache();
  EXPECT_EQ(simulator_.memory().segments, 1) << "that of the sum";
  hold.release();
  EXPECT_THAT(error_of([&] { other_.synchronize(); }), HasSubstr("'free'"));
}

TEST_F(SimulatorLifetimesTest, AMemoryShortageReleasesASegmentUnderARacingReader) {
  simulator_.set_capacity(0, 64 * kMiB);
  at::Tensor x = ones(8 * kMiB);
  simulator_.synchronize();
  StreamHold hold = simulator_.hold(other_);
  at::Tensor sum;
  {
    const c10::StreamGuard guard(other_);
    sum = x.slice(0, 0, 16).add(1);
  }
  x.reset();
  EXPECT_EQ(simulator_.races().size(), 1U);
  EXPECT_NO_THROW((void)at::empty({10 * kMiB}, sum.options()));
  hold.release();
  EXPECT_THAT(error_of([&] { simulator_.synchronize(); }), HasSubstr("'free'"));
  EXPECT_TRUE(sum.cpu().isnan().all().item<bool>()) << "the reader saw the poison";
}

TEST_F(SimulatorLifetimesTest, ARecordedUseOfMemoryThatIsNotThereFailsAndDoesNotRun) {
  simulator_.set_race_action(RaceAction::kRecord);
  at::Tensor x = ones(4 * kMiB);
  at::Tensor stale = alias(x);
  x.reset();
  simulator_.empty_cache();
  stale.fill_(2);
  ASSERT_EQ(simulator_.races().size(), 1U);
  EXPECT_EQ(simulator_.races().front().kind, RaceKind::kNotAllocated);
  EXPECT_THAT(error_of([&] { simulator_.synchronize(); }),
              HasSubstr("'aten::fill_' was not run: it uses memory that is not allocated"));
  EXPECT_THROW((void)stale.cpu(), c10::AcceleratorError);
}

TEST_F(SimulatorLifetimesTest, PinnedMemoryOutlivesTheCopyOfAViewThatLibTorchDoesNotKnow) {
  const std::int64_t before = simulator_.pinned_bytes();
  StreamHold hold = simulator_.hold(default_stream());
  at::Tensor pinned = at::ones({1024}).pin_memory();
  const at::Tensor view = at::from_blob(static_cast<float*>(pinned.data_ptr()) + 512, {512});
  const at::Tensor copy = view.to(simulator_.device(), /*non_blocking=*/true);
  pinned.reset();
  EXPECT_EQ(simulator_.pinned_bytes() - before, 4096);
  hold.release();
  EXPECT_TRUE(copy.cpu().equal(at::ones({512})));
  EXPECT_EQ(simulator_.pinned_bytes(), before);
}

TEST_F(SimulatorLifetimesTest, HostMemoryIsFreedUnderACopyAndTheRaceIsThrown) {
  const auto memory = simulator_.host_memory();
  StreamHold hold = simulator_.hold(default_stream());
  void* const data = memory->allocate(4096);
  memory->pin(data, 4096);
  const at::Tensor copy = at::from_blob(data, {1024})
                              .to(simulator_.device(),
                                  /*non_blocking=*/true);
  memory->free(data, 4096);
  EXPECT_FALSE(simulator_.is_pinned(data));
  hold.release();
  EXPECT_THAT(error_of([&] { default_stream().synchronize(); }),
              HasSubstr("race: 'free of host memory' (host, task 1)"));
}

TEST_F(SimulatorLifetimesTest, HostMemoryThatIsFreedWhileItIsPinnedIsReported) {
  const auto memory = simulator_.host_memory();
  void* const data = memory->allocate(4096);
  memory->pin(data, 4096);
  memory->free(data, 4096);
  EXPECT_THAT(error_of([&] { default_stream().synchronize(); }),
              HasSubstr("4096 bytes of host memory were freed while they were pinned"));
}

TEST_F(SimulatorLifetimesTest, HostMemoryThatWasUnpinnedInARaceStaysUntilItsCopyHasRun) {
  simulator_.set_race_action(RaceAction::kRecord);
  const auto memory = simulator_.host_memory();
  StreamHold hold = simulator_.hold(default_stream());
  auto* const data = static_cast<float*>(memory->allocate(4096));
  memory->pin(data, 4096);
  std::fill_n(data, 1024, 3.0F);
  const at::Tensor copy = at::from_blob(data, {1024})
                              .to(simulator_.device(),
                                  /*non_blocking=*/true);
  memory->unpin(data, 4096);
  memory->free(data, 4096);
  EXPECT_EQ(simulator_.races().size(), 1U);
  hold.release();
  EXPECT_TRUE(copy.cpu().equal(at::full({1024}, 3.0F)));
}

TEST_F(SimulatorLifetimesTest, AUseAfterAFreeIsFoundAlthoughTheResultGetsTheSameBlock) {
  const at::Tensor keep = ones(64);
  at::Tensor x = ones(64);
  const at::Tensor stale = alias(x);
  x.reset();
  EXPECT_THAT(error_of([&] { (void)stale.relu(); }), HasSubstr("use after free: 'aten::relu'"));
  simulator_.set_race_action(RaceAction::kRecord);
  (void)stale.relu();
  EXPECT_EQ(simulator_.races().size(), 2U) << "one more, and not another for the result's block";
}

TEST_F(SimulatorLifetimesTest, AReadOfABlockThatWasHandedOutAgainNamesTheFree) {
  const at::Tensor keep = ones(64);
  at::Tensor x = ones(64);
  const at::Tensor stale = alias(x);
  x.reset();
  EXPECT_THAT(error_of([&] { (void)stale.mul(2); }),
              HasSubstr("; 'free' (sim:0 default stream, task 5) gave back what was there before"));
  const at::Tensor fresh = at::empty({kMiB}, keep.options());
  EXPECT_THAT(error_of([&] { (void)fresh.add(1); }), Not(HasSubstr("gave back")));
}

TEST_F(SimulatorLifetimesTest, AnIndexOnTheHostIsNotReadBeforeItsCopyIsDone) {
  const at::Tensor x = ones(8);
  const at::Tensor index = at::full({2}, 3, x.options().dtype(at::kLong));
  at::Tensor host = at::empty({2}, at::TensorOptions().dtype(at::kLong).pinned_memory(true));
  host.copy_(index, /*non_blocking=*/true);
  const at::Tensor value = at::full({}, 5.0F, x.options());
  EXPECT_THAT(error_of([&] { (void)x.index_put({host}, value); }),
              HasSubstr("_index_put_impl_' (host, task 1) reads"));
  default_stream().synchronize();
  EXPECT_EQ(x.index_put({host}, value)[3].item<float>(), 5);
}

TEST_F(SimulatorLifetimesTest, AScalarOnTheHostIsNotReadBeforeItsCopyIsDone) {
  const at::Tensor x = ones(8);
  const at::Tensor two = at::full({}, 2.0F, x.options());
  at::Tensor host = at::empty({}, at::TensorOptions().pinned_memory(true));
  host.copy_(two, /*non_blocking=*/true);
  EXPECT_THAT(error_of([&] { (void)x.add(host); }), HasSubstr("'host operand of aten::add'"));
  default_stream().synchronize();
  EXPECT_TRUE(x.add(host).cpu().equal(at::full({8}, 3.0F)));
}

TEST_F(SimulatorLifetimesTest, WhatTheRaceCheckerRefusesIsNotCounted) {
  at::Tensor x = ones(8);
  at::Tensor host = at::empty({8});
  const SimulatorCounters before = simulator_.counters();
  {
    const c10::StreamGuard guard(other_);
    EXPECT_THROW(x.fill_(2), RaceError);
    EXPECT_THROW((void)x.nonzero(), RaceError);
    EXPECT_THROW(host.copy_(x), RaceError);
    EXPECT_THROW((void)x[0].item(), RaceError);
  }
  EXPECT_EQ(simulator_.counters() - before, SimulatorCounters());
}

TEST_F(SimulatorLifetimesTest, ABlockThatIsHeldForARecordedStreamIsNotUsedAfterItsFreeEither) {
  at::Tensor x = ones(16);
  at::Tensor stale = alias(x);
  x.record_stream(other_);
  const StreamHold hold = simulator_.hold(other_);
  x.reset();
  EXPECT_THAT(error_of([&] { stale.fill_(2); }), HasSubstr("use after free: 'aten::fill_'"));
  order(other_, default_stream());
  EXPECT_THAT(error_of([&] { stale.fill_(2); }), HasSubstr("use after free: 'aten::fill_'"));
}

TEST_F(SimulatorLifetimesTest, AFreeIsJudgedByWhatOrdersItWhenItIsCalledAndNotLater) {
  at::Tensor x = ones(16);
  const c10::Stream another = new_stream();
  order(default_stream(), other_);
  at::Tensor sum;
  on(other_, [&] { sum = x.add(1); });
  x.record_stream(another);  // The wrong one.
  x.reset();
  EXPECT_THAT(error_of([&] { other_.synchronize(); }), HasSubstr("'free'")) << "it is too late";
  ASSERT_EQ(simulator_.races().size(), 1U);
  EXPECT_EQ(simulator_.races().front().first.name, "aten::add");
  (void)ones(16);
  EXPECT_EQ(simulator_.races().size(), 1U) << "it is judged once";
  on(other_, [&] { sum.reset(); });
}

}  // namespace
}  // namespace offstage::testing
