// SPDX-License-Identifier: Apache-2.0
// What gives a program no order, although in fact it comes later: it would be a race elsewhere.
#include "race_fixture.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>

#include <string>

namespace offstage::testing {
namespace {

using ::testing::HasSubstr;

class RaceReportOrderTest : public RaceTest {
 protected:
  /// A sum that is computed on the copy stream from a tensor that is then given back.
  at::Tensor sum_on_copies() {
    at::Tensor values = at::ones({4}, on_device());
    order(default_stream(), copies_);
    at::Tensor sum;
    on(copies_, [&] { sum = values.add(1); });
    values.record_stream(copies_);
    sum.record_stream(default_stream());
    return sum;
  }

  const c10::Stream copies_ = new_stream();
};

TEST_F(RaceReportOrderTest, ReuseOfAParkedBlockOrdersNothing) {
  const at::Tensor sum = sum_on_copies();
  simulator_.advance_host(std::chrono::seconds(1));
  (void)at::ones({4}, on_device());
  EXPECT_EQ(simulator_.memory().active, 512) << "the parked block is free, the sum is not";
  EXPECT_THAT(race_of([&] { (void)sum.add(1); }), HasSubstr("'aten::add"));
}

TEST_F(RaceReportOrderTest, GivingAParkedBlockBackOrdersNothing) {
  const at::Tensor sum = sum_on_copies();
  simulator_.empty_cache();
  EXPECT_THAT(race_of([&] { (void)sum.add(1); }), HasSubstr("'aten::add"));
}

TEST_F(RaceReportOrderTest, GivingASegmentBackOrdersNothing) {
  at::Tensor kept;
  on(copies_, [&] {
    kept = at::ones({4}, on_device());
    (void)at::ones({4 * 1024 * 1024}, on_device());
  });
  kept.record_stream(default_stream());
  simulator_.empty_cache();
  EXPECT_THAT(race_of([&] { (void)kept.add(1); }), HasSubstr("'aten::add"));
}

TEST_F(RaceReportOrderTest, WhatOnlyTheSimulatorWaitsForIsNotOrdered) {
  at::Tensor values = at::ones({4}, on_device());
  order(default_stream(), copies_);
  on(copies_, [&] { values.normal_(); });  // Drawn at once, which no device would do.
  EXPECT_THAT(race_of([&] { (void)values.add(1); }), HasSubstr("'aten::normal_"));
  order(copies_, default_stream());
}

TEST_F(RaceReportOrderTest, WhatAnyDeviceWaitsForIsOrdered) {
  at::Tensor values = at::ones({4}, on_device());
  order(default_stream(), copies_);
  on(copies_, [&] {
    values.fill_(2);
    (void)values.nonzero();  // Its shape depends on the values.
  });
  EXPECT_NO_THROW((void)values.add(1));
  order(default_stream(), copies_);
  on(copies_, [&] {
    values.fill_(3);
    EXPECT_TRUE(values.equal(values));
  });
  EXPECT_NO_THROW((void)values.add(1));
}

TEST_F(RaceReportOrderTest, FewRowsAreTakenApartAndManyCountAsOneStretch) {
  const at::Tensor few = at::empty({4, 8}, on_device());
  few.narrow(1, 0, 4).fill_(1);
  EXPECT_THAT(race_of([&] { (void)few.narrow(0, 0, 3).narrow(1, 4, 4).add(1); }),
              HasSubstr("never written"));
  const at::Tensor many = at::empty({100, 8}, on_device());
  many.narrow(1, 0, 4).fill_(1);
  EXPECT_NO_THROW((void)many.narrow(0, 0, 99).narrow(1, 4, 4).add(1));
}

TEST_F(RaceReportOrderTest, AnItemIsReadInOrderToo) {
  at::Tensor values = at::ones({4}, on_device());
  order(default_stream(), copies_);
  on(copies_, [&] { values.fill_(2); });
  EXPECT_THAT(race_of([&] { (void)values[0].item<float>(); }), HasSubstr("'aten::item'"));
  order(copies_, default_stream());
}

TEST_F(RaceReportOrderTest, AStorageThatGrowsIsReadInOrderToo) {
  at::Tensor values = at::ones({4}, on_device());
  order(default_stream(), copies_);
  on(copies_, [&] { values.fill_(2); });
  EXPECT_THAT(race_of([&] { values.resize_({1000}); }), HasSubstr("'copy of a resized storage'"));
  order(copies_, default_stream());
}

TEST_F(RaceReportOrderTest, ABlockIsGivenBackAfterTheStreamsThatWereRecorded) {
  (void)sum_on_copies();
  simulator_.empty_cache();
  EXPECT_NO_THROW(simulator_.synchronize());
  EXPECT_TRUE(simulator_.races().empty());
}

TEST_F(RaceReportOrderTest, AParkedBlockThatIsFreeIsNotUsed) {
  at::Tensor values = at::ones({1024, 1024}, on_device());
  c10::Storage dangling(c10::Storage::use_byte_size_t(), 4096,
                        c10::DataPtr(values.data_ptr(), c10::Device(simulator_.device())));
  const at::Tensor view = at::empty({0}, on_device()).set_(dangling, 0, {16}, {1});
  const at::Tensor neighbour = at::ones({1024, 1024}, on_device());  // Keeps the segment.
  values.record_stream(copies_);
  values.reset();
  simulator_.empty_cache();
  EXPECT_THAT(race_of([&] { (void)view.add(1); }), HasSubstr("use after free"));
}

TEST_F(RaceReportOrderTest, OnlyTheTermThatIsTakenOutNeedNotBeWritten) {
  const at::Tensor fresh = at::empty({4, 4}, on_device());
  const at::Tensor ones = at::ones({4, 4}, on_device());
  EXPECT_THAT(race_of([&] { (void)at::addmm(ones, fresh, ones, /*beta=*/0); }),
              HasSubstr("never written"));
}

TEST_F(RaceReportOrderTest, AHostScalarIsTakenAtTheCall) {
  const at::Tensor values = at::ones({4}, on_device());
  at::Tensor factor = pinned(at::full({}, 2.0F));
  StreamHold hold = simulator_.hold(default_stream());
  const at::Tensor product = values.mul(factor);
  EXPECT_NO_THROW(simulator_.host_writes(factor.data_ptr(), 4));
  factor.fill_(5);
  hold.release();
  EXPECT_TRUE(product.cpu().equal(at::full({4}, 2.0F)));
}

TEST_F(RaceReportOrderTest, WhatIsIgnoredIsNotRememberedEither) {
  at::Tensor values = at::ones({4}, on_device());
  const at::Tensor host = pinned(at::zeros({4}));
  host.copy_(values, /*non_blocking=*/true);
  order(default_stream(), copies_);
  at::Tensor sum;
  on(copies_, [&] { sum = values.add(1); });
  simulator_.set_race_action(RaceAction::kIgnore);
  simulator_.host_reads(host.data_ptr(), 16);
  on(copies_, [&] { values.normal_(); });  // Over when it returns, and ordered with nothing.
  simulator_.set_race_action(RaceAction::kThrow);
  EXPECT_NO_THROW((void)values.add(1));
  on(copies_, [&] { sum = values.add(1); });
  simulator_.set_race_action(RaceAction::kIgnore);
  values.reset();  // Under the sum, as far as anybody knows.
  simulator_.synchronize();
  EXPECT_TRUE(simulator_.races().empty());
  on(copies_, [&] { sum.reset(); });
}

}  // namespace
}  // namespace offstage::testing
