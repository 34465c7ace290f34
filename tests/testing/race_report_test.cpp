// SPDX-License-Identifier: Apache-2.0
// Races of programs that use the simulated accelerator through LibTorch.
#include "race_fixture.hpp"

#include <offstage/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>

#include <functional>
#include <string>

namespace offstage::testing {
namespace {

using ::testing::HasSubstr;

class RaceReportTest : public RaceTest {
 protected:
  const c10::Stream copies_ = new_stream();
  const at::Tensor host_ = pinned(at::ones({4, 4}));
};

TEST_F(RaceReportTest, AForgottenWaitForACopyNamesKernelCopyStreamsAndBytes) {
  at::Tensor weight = at::empty({4, 4}, on_device());
  order(default_stream(), copies_);
  const at::Tensor input = at::ones({2, 4}, on_device());
  on(copies_, [&] { weight.copy_(host_, /*non_blocking=*/true); });
  try {
    (void)at::linear(input, weight);
    FAIL() << "expected a RaceError";
  } catch (const RaceError& error) {
    const RaceReport& report = error.report();
    EXPECT_EQ(report.kind, RaceKind::kUnordered);
    EXPECT_EQ(report.first.name, "copy to the device");
    EXPECT_EQ(report.first.stream, "sim:0 stream " + std::to_string(copies_.id()));
    EXPECT_TRUE(report.first.writes);
    EXPECT_EQ(report.second.name, "aten::mm");
    EXPECT_EQ(report.second.stream, "sim:0 default stream");
    EXPECT_FALSE(report.second.writes);
    EXPECT_EQ(report.begin, reinterpret_cast<std::uintptr_t>(weight.data_ptr()));
    EXPECT_EQ(report.end - report.begin, 64U);
    EXPECT_THAT(error.what(), HasSubstr("must wait for an event recorded on"));
  }
  EXPECT_EQ(simulator_.races().size(), 1U);
  order(copies_, default_stream());
  EXPECT_TRUE(at::linear(input, weight).cpu().equal(at::full({2, 4}, 4.0F)));
}

TEST_F(RaceReportTest, ACopyOverAWeightThatAKernelMayStillReadIsFound) {
  at::Tensor weight = at::ones({4, 4}, on_device());
  const at::Tensor result = at::linear(weight, weight);
  EXPECT_THAT(race_of([&] { on(copies_, [&] { weight.copy_(host_, /*non_blocking=*/true); }); }),
              HasSubstr("'copy to the device'"));
  order(default_stream(), copies_);
  on(copies_, [&] { weight.copy_(host_, /*non_blocking=*/true); });
  order(copies_, default_stream());  // Before the weight is freed on its own stream.
}

TEST_F(RaceReportTest, ASynchronisationOfTheHostOrders) {
  at::Tensor weight = at::ones({4, 4}, on_device());
  default_stream().synchronize();
  on(copies_, [&] { weight.copy_(host_, /*non_blocking=*/true); });
  copies_.synchronize();
  EXPECT_TRUE(weight.add(1).cpu().equal(at::full({4, 4}, 2.0F)));
}

TEST_F(RaceReportTest, AQueryThatSaysYesOrdersAndOneThatSaysNoDoesNot) {
  at::Tensor weight = at::empty({4, 4}, on_device());
  order(default_stream(), copies_);
  on(copies_, [&] { weight.copy_(host_, /*non_blocking=*/true); });
  EXPECT_FALSE(copies_.query()) << "the copy takes longer than it takes to ask";
  EXPECT_THAT(race_of([&] { weight.add_(1); }), HasSubstr("'aten::add'"));
  while (!copies_.query()) continue;  // Asking takes virtual time.
  EXPECT_NO_THROW(weight.add_(1));
}

TEST_F(RaceReportTest, TwoDevicesHaveTheirOwnMemoryAndShareEvents) {
  at::Tensor first = at::ones({4}, on_device(0));
  at::Tensor second = at::zeros({4}, on_device(1));
  second.copy_(first);  // LibTorch orders both current streams.
  first.fill_(2);
  EXPECT_TRUE(second.cpu().equal(at::ones({4})));
  second.add_(1);
  const c10::Stream other = new_stream(1);
  EXPECT_THAT(race_of([&] { on(other, [&] { second.fill_(3); }); }), HasSubstr("sim:1 stream"));
  order(default_stream(1), other);
  on(other, [&] { second.fill_(3); });
  order(other, default_stream(1));
}

TEST_F(RaceReportTest, ACopyBetweenDevicesIsInOrderWithTheCurrentStreamsOfBothAndNoOthers) {
  const at::Tensor first = at::ones({4}, on_device(0));
  const c10::Stream of_second = new_stream(1);
  at::Tensor second;
  on(of_second, [&] {
    second = at::zeros({4}, on_device(1));
    second.copy_(first);
    second.add_(1);
  });
  EXPECT_THAT(race_of([&] { second.add_(1); }), HasSubstr("sim:1 default stream"));
  order(of_second, default_stream(1));
  EXPECT_TRUE(second.cpu().equal(at::full({4}, 2.0F)));
  order(default_stream(1), of_second);
}

TEST_F(RaceReportTest, AFreeUnderAReaderThatWasNotRecordedIsThrownByTheNextSynchronisation) {
  at::Tensor weight = at::ones({4, 4}, on_device());
  order(default_stream(), copies_);
  at::Tensor sum;
  on(copies_, [&] { sum = weight.add(1); });
  weight.reset();
  EXPECT_THAT(race_of([&] { default_stream().synchronize(); }), HasSubstr("'free'"));

  weight = at::ones({4, 4}, on_device());
  order(default_stream(), copies_);
  on(copies_, [&] { sum = weight.add(1); });
  weight.record_stream(copies_);
  weight.reset();
  EXPECT_NO_THROW(default_stream().synchronize());
  on(copies_, [&] { sum.reset(); });
}

TEST_F(RaceReportTest, ReadingWhatNothingWroteIsFound) {
  const at::Tensor fresh = at::empty({8}, on_device());
  EXPECT_THAT(race_of([&] { (void)fresh.add(1); }), HasSubstr("never written"));
  EXPECT_EQ(simulator_.races().front().kind, RaceKind::kNeverWritten);
}

TEST_F(RaceReportTest, MovingFreshBytesToALargerStorageIsNoReadOfThem) {
  at::Tensor fresh = at::empty({8}, on_device());
  EXPECT_NO_THROW(fresh.resize_({1000}));
}

TEST_F(RaceReportTest, OldValuesThatAreOnlyPassedOnNeedNotBeWritten) {
  const auto fresh = [&] { return at::empty({4, 4}, on_device()); };
  const at::Tensor ones = at::ones({4, 4}, on_device());
  const at::Tensor index = at::zeros({1}, on_device().dtype(at::kLong));
  EXPECT_NO_THROW((void)at::addmm(fresh(), ones, ones, /*beta=*/0));
  EXPECT_NO_THROW((void)at::baddbmm(fresh().view({1, 4, 4}), ones.view({1, 4, 4}),
                                    ones.view({1, 4, 4}), /*beta=*/0));
  EXPECT_NO_THROW((void)fresh().index_copy_(0, index, ones.narrow(0, 0, 1)));
  EXPECT_NO_THROW((void)fresh().index_put_({index}, ones[0]));
  EXPECT_NO_THROW((void)fresh().scatter_(0, index.view({1, 1}), ones));
  EXPECT_NO_THROW((void)fresh().masked_fill_(ones.gt(0), 2.0));
  EXPECT_NO_THROW((void)fresh().clone());
  EXPECT_THAT(race_of([&] { (void)at::addmm(fresh(), ones, ones); }), HasSubstr("' (sim:0"));
  EXPECT_THAT(race_of([&] { (void)fresh().add_(1); }), HasSubstr(" reads bytes [0, 64)"));
  EXPECT_THAT(race_of([&] { (void)fresh().cpu(); }), HasSubstr("'copy to the host'"));
}

TEST_F(RaceReportTest, ATensorOverFreedMemoryIsFound) {
  at::Tensor block = at::ones({1024, 1024}, on_device());
  c10::Storage dangling =
      c10::Storage(c10::Storage::use_byte_size_t(), 4096,
                   c10::DataPtr(block.data_ptr(), c10::Device(simulator_.device())));
  at::Tensor view = at::empty({0}, on_device()).set_(dangling, 0, {16}, {1});
  block.reset();
  EXPECT_THAT(race_of([&] { (void)view.add(1); }), HasSubstr("use after free"));
  simulator_.empty_cache();
  EXPECT_THAT(race_of([&] { (void)view.add(1); }), HasSubstr("not allocated"));
}

TEST_F(RaceReportTest, TheHostReadsAPinnedBufferOnlyAfterItsCopy) {
  const at::Tensor device = at::ones({64}, on_device());
  at::Tensor result = pinned(at::zeros({64}));
  result.copy_(device, /*non_blocking=*/true);
  const auto read = [&] { simulator_.host_reads(result.data_ptr(), 256); };
  EXPECT_THAT(race_of(read), HasSubstr("'host read' (host, task 1) reads"));
  default_stream().synchronize();
  EXPECT_NO_THROW(read());
}

TEST_F(RaceReportTest, TheHostChangesAPinnedBufferOnlyAfterItsCopy) {
  at::Tensor device = at::empty({4, 4}, on_device());
  device.copy_(host_, /*non_blocking=*/true);
  const auto write = [&] { simulator_.host_writes(host_.data_ptr(), 4, "new weights"); };
  EXPECT_THAT(race_of(write), HasSubstr("'new weights'"));
  EXPECT_NO_THROW(simulator_.host_reads(host_.data_ptr(), 4)) << "two reads are no race";
  default_stream().synchronize();
  EXPECT_NO_THROW(write());
}

TEST_F(RaceReportTest, HostMemoryIsNotUnregisteredUnderACopy) {
  const auto memory = simulator_.host_memory();
  void* data = memory->allocate(4096);
  memory->pin(data, 4096);
  at::Tensor device = at::empty({64}, on_device());
  const at::Tensor host = at::from_blob(data, {64});
  device.copy_(host, /*non_blocking=*/true);
  EXPECT_THAT(race_of([&] { memory->unpin(data, 4096); }), HasSubstr("unregistering"));
  default_stream().synchronize();
  memory->unpin(data, 4096);
  memory->free(data, 4096);
}

TEST_F(RaceReportTest, ASliceOfColumnsRacesOnlyWithItsOwnColumns) {
  at::Tensor matrix = at::zeros({100, 8}, on_device());
  order(default_stream(), copies_);
  const auto left = matrix.narrow(1, 0, 4);
  const auto right = matrix.narrow(1, 4, 4);
  left.fill_(1);
  on(copies_, [&] { EXPECT_NO_THROW(right.fill_(2)); });
  EXPECT_THAT(race_of([&] { matrix.narrow(1, 3, 2).fill_(0); }), HasSubstr("'aten::fill_"));
  order(copies_, default_stream());
}

TEST_F(RaceReportTest, ABatchNormInTrainingWritesItsStatisticsThoughTheSchemaDoesNotSay) {
  const at::Tensor input = at::rand({4, 3, 2}, on_device());
  const at::Tensor mean = at::zeros({3}, on_device());
  const at::Tensor variance = at::ones({3}, on_device());
  const auto normalise = [&](bool training) {
    (void)at::native_batch_norm(input, {}, {}, mean, variance, training, 0.1, 1e-5);
  };
  order(default_stream(), copies_);
  normalise(/*training=*/false);
  on(copies_, [&] { EXPECT_NO_THROW((void)mean.add(1)); });
  EXPECT_THAT(race_of([&] { normalise(/*training=*/true); }), HasSubstr("batch_norm"));
  order(copies_, default_stream());
}

TEST_F(RaceReportTest, RecordingGoesOnAndIgnoringSeesNothing) {
  at::Tensor weight = at::ones({4}, on_device());
  simulator_.set_race_action(RaceAction::kRecord);
  on(copies_, [&] { weight.fill_(2); });
  EXPECT_EQ(simulator_.races().size(), 1U);
  simulator_.set_race_action(RaceAction::kIgnore);
  weight.fill_(3);
  EXPECT_EQ(simulator_.races().size(), 1U);
  simulator_.set_race_action(RaceAction::kThrow);
  EXPECT_NO_THROW((void)weight.add(1)) << "nothing is known of uses that were ignored";
  simulator_.synchronize();
}

using RaceReportDeathTest = RaceReportTest;

TEST_F(RaceReportDeathTest, AbortingPrintsTheReport) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        at::Tensor weight = at::ones({4}, on_device());
        simulator_.set_race_action(RaceAction::kAbort);
        on(copies_, [&] { weight.fill_(2); });
      },
      "race: 'aten::fill_");
}

TEST_F(RaceReportTest, AnIgnoredWaitOrRecordIsFoundAndACountSaysWhichItWas) {
  at::Tensor weight = at::empty({4, 4}, on_device());
  order(default_stream(), copies_);
  on(copies_, [&] { weight.copy_(host_, /*non_blocking=*/true); });
  simulator_.faults().fail(FaultPoint::kWait, FaultWhen::nth(1), Fault::kIgnored);
  order(copies_, default_stream());
  EXPECT_THAT(race_of([&] { (void)weight.add(1); }), HasSubstr("'aten::add"));
  simulator_.faults().clear();
  simulator_.faults().fail(FaultPoint::kRecord, FaultWhen::nth(1), Fault::kIgnored);
  order(copies_, default_stream());
  EXPECT_THAT(race_of([&] { (void)weight.add(1); }), HasSubstr("'aten::add"));
  order(copies_, default_stream());
  EXPECT_NO_THROW((void)weight.add(1));
}

}  // namespace
}  // namespace offstage::testing
