// SPDX-License-Identifier: Apache-2.0
// Reads of what was never written: of parts that values choose, and by way of copies.
#include "race_fixture.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

namespace offstage::testing {
namespace {

using ::testing::HasSubstr;

class RaceReportUnwrittenTest : public RaceTest {
 protected:
  /// Eight rows of which the first `count` are written.
  at::Tensor rows(std::int64_t count) const {
    at::Tensor all = at::empty({8, 4}, on_device());
    if (count > 0) all.narrow(0, 0, count).fill_(1);
    return all;
  }

  /// What a kernel finds that reads rows [first, first + count).
  std::string race_of_rows(const at::Tensor& all, std::int64_t first, std::int64_t count) const {
    return race_of([&] { (void)all.narrow(0, first, count).add(1); });
  }
};

TEST_F(RaceReportUnwrittenTest, WhatValuesChooseFromABufferInPartWrittenIsNoFinding) {
  const at::Tensor index = at::arange(2, on_device().dtype(at::kLong));
  const at::Tensor places = index.view({2, 1});
  const std::vector<std::function<void(const at::Tensor&)>> readers = {
      [&](const at::Tensor& all) { (void)all.index_select(0, index); },
      [&](const at::Tensor& all) { (void)all.index({index}); },
      [&](const at::Tensor& all) { (void)all.gather(0, places); },
      [&](const at::Tensor& all) { (void)at::embedding(all, index); },
      [&](const at::Tensor& all) { (void)all.take(index); },
      [&](const at::Tensor& all) { (void)all.take_along_dim(places, 0); },
      [&](const at::Tensor& all) { (void)all.index_add(0, index, all.narrow(0, 0, 2)); },
      [&](const at::Tensor& all) { (void)all.scatter_add(0, places, all.narrow(0, 0, 2)); }};
  for (std::size_t i = 0; i < readers.size(); ++i) {
    EXPECT_EQ(race_of([&] { readers[i](rows(2)); }), "no race") << i;
    EXPECT_THAT(race_of([&] { readers[i](rows(0)); }), HasSubstr("never written")) << i;
  }
}

TEST_F(RaceReportUnwrittenTest, WhatValuesChooseStillRacesWithAWriteOfTheWhole) {
  const at::Tensor all = rows(8);
  const at::Tensor index = at::zeros({1}, on_device().dtype(at::kLong));
  const c10::Stream other = new_stream();
  order(default_stream(), other);
  on(other, [&] { all.narrow(0, 7, 1).fill_(2); });
  EXPECT_THAT(race_of([&] { (void)all.index_select(0, index); }), HasSubstr("'aten::fill_'"));
  order(other, default_stream());
}

TEST_F(RaceReportUnwrittenTest, ACopyOfMemoryInPartWrittenIsWrittenInThatPart) {
  at::Tensor copy = at::ones({8, 4}, on_device());
  copy.copy_(rows(2));
  EXPECT_EQ(race_of_rows(copy, 0, 2), "no race");
  EXPECT_THAT(race_of_rows(copy, 2, 6),
              AllOf(HasSubstr("read of memory that was never written"),
                    HasSubstr("'copy on the device' (sim:0 default stream, task "),
                    HasSubstr("has copied it from memory that nothing had written")));
  EXPECT_THAT(race_of_rows(rows(2).clone(), 1, 2), HasSubstr("[32, 48) of"));
  copy.narrow(0, 2, 6).fill_(1);
  EXPECT_EQ(race_of_rows(copy, 0, 8), "no race");
}

TEST_F(RaceReportUnwrittenTest, AStorageThatGrowsKeepsWhatWasWritten) {
  at::Tensor growing = rows(2);
  growing.resize_({1000, 4});
  EXPECT_EQ(race_of_rows(growing, 0, 2), "no race");
  EXPECT_THAT(race_of_rows(growing, 2, 1), HasSubstr("never written"));
}

TEST_F(RaceReportUnwrittenTest, ACopyToAnotherDeviceHandsOnWhatWasNeverWritten) {
  const at::Tensor copy = rows(2).to(simulator_.device(1));
  const auto cpu = [](const at::Tensor& tensor) { return [=] { (void)tensor.cpu(); }; };
  EXPECT_EQ(race_of(cpu(copy.narrow(0, 0, 2))), "no race");
  EXPECT_THAT(race_of(cpu(copy)), HasSubstr("'copy to the host'"));
}

TEST_F(RaceReportUnwrittenTest, AConversionOfMemoryThatNothingWroteIsNotWritten) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> copies = {
      [](const at::Tensor& all) { return all.to(at::kDouble); },
      [](const at::Tensor& all) { return all.t().contiguous(); },
      [](const at::Tensor& all) { return all.narrow(1, 0, 2).contiguous(); },
      [](const at::Tensor& all) {
        return at::ones({8, 8}, all.options()).narrow(1, 0, 4).copy_(all);
      }};
  for (std::size_t i = 0; i < copies.size(); ++i) {
    EXPECT_THAT(race_of([&] { (void)copies[i](rows(0)).add(1); }), HasSubstr("never written")) << i;
    EXPECT_EQ(race_of([&] { (void)copies[i](rows(2)).add(1); }), "no race") << i;
  }
}

}  // namespace
}  // namespace offstage::testing
