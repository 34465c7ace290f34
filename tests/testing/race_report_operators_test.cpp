// SPDX-License-Identifier: Apache-2.0
// What single operators read and write, where their schema does not say it.
#include "race_fixture.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>

#include <functional>
#include <string>

namespace offstage::testing {
namespace {

using ::testing::HasSubstr;

class RaceReportOperatorsTest : public RaceTest {
 protected:
  at::Tensor fresh() const { return at::empty({4, 4}, on_device()); }

  at::Tensor ones() const { return at::ones({4, 4}, on_device()); }
  at::Tensor index() const { return at::zeros({1}, on_device().dtype(at::kLong)); }
  const c10::Stream other_ = new_stream();
};

TEST_F(RaceReportOperatorsTest, WhatIsAddedToIsRead) {
  const std::string read = "read of memory that was never written";
  EXPECT_THAT(race_of([&] { fresh().index_put_({index()}, ones()[0], /*accumulate=*/true); }),
              HasSubstr(read));
  EXPECT_THAT(race_of([&] { fresh().put_(index(), ones()[0][0], /*accumulate=*/true); }),
              HasSubstr(read));
  const at::Tensor place = index().view({1, 1});
  EXPECT_THAT(race_of([&] { fresh().scatter_(0, place, ones(), "add"); }), HasSubstr(read));
  EXPECT_THAT(race_of([&] { fresh().scatter_(0, place, 2, "multiply"); }), HasSubstr(read));
  EXPECT_THAT(race_of([&] { fresh().scatter_add_(0, place, ones()); }), HasSubstr(read));
  EXPECT_THAT(race_of([&] { fresh().scatter_reduce_(0, place, ones(), "sum"); }), HasSubstr(read));
  EXPECT_THAT(race_of([&] {
                fresh().index_reduce_(0, index(), ones()[0].view({1, 4}), "prod");
              }),
              HasSubstr(read));
  EXPECT_EQ(race_of([&] { fresh().put_(index(), ones()[0][0]); }), "no race");
}

TEST_F(RaceReportOperatorsTest, AReductionWithoutTheOldValuesDoesNotReadThem) {
  EXPECT_EQ(race_of([&] {
              fresh().scatter_reduce_(0, index().view({1, 1}), ones(), "sum",
                                      /*include_self=*/false);
            }),
            "no race");
  EXPECT_EQ(race_of([&] {
              fresh().index_reduce_(0, index(), ones()[0].view({1, 4}), "prod",
                                    /*include_self=*/false);
            }),
            "no race");
}

TEST_F(RaceReportOperatorsTest, DrawingRandomNumbersDoesNotReadTheOldValues) {
  EXPECT_EQ(race_of([&] { fresh().log_normal_(); }), "no race");
  EXPECT_EQ(race_of([&] { fresh().cauchy_(); }), "no race");
  EXPECT_EQ(race_of([&] { fresh().geometric_(0.5); }), "no race");
}

TEST_F(RaceReportOperatorsTest, TheUpdateOfABatchNormsStatisticsWritesThem) {
  const at::Tensor mean = at::zeros({4}, on_device());
  const at::Tensor variance = at::ones({4}, on_device());
  order(default_stream(), other_);
  on(other_, [&] { (void)mean.add(1); });
  EXPECT_THAT(race_of([&] { (void)at::batch_norm_update_stats(ones(), mean, variance, 0.1); }),
              HasSubstr("'aten::batch_norm_update_stats'"));
  order(other_, default_stream());
}

TEST_F(RaceReportOperatorsTest, TheGradientOfABatchNormInTrainingLeavesItsStatistics) {
  const at::Tensor mean = at::zeros({4}, on_device());
  const at::Tensor variance = at::ones({4}, on_device());
  const auto [y, saved_mean, saved_deviation] =
      at::native_batch_norm(ones(), {}, {}, mean, variance, /*training=*/true, 0.1, 1e-5);
  order(default_stream(), other_);
  on(other_, [&] { (void)mean.add(1); });
  EXPECT_EQ(race_of([&, &saved_mean = saved_mean, &saved_deviation = saved_deviation] {
              (void)at::native_batch_norm_backward(ones(), ones(), {}, mean, variance, saved_mean,
                                                   saved_deviation, /*train=*/true, 1e-5,
                                                   {true, false, false});
            }),
            "no race");
  order(other_, default_stream());
}

TEST_F(RaceReportOperatorsTest, PlacesToWriteToMayBeGivenOnTheHost) {
  at::Tensor values = ones();
  values.index_put_({at::zeros({1}, at::kLong)}, ones()[0].mul(5));
  EXPECT_EQ(values.sum().item<float>(), 32.0F);
}

}  // namespace
}  // namespace offstage::testing
