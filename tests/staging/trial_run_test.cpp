// SPDX-License-Identifier: Apache-2.0
#include <offstage/staging/trial_run.hpp>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace offstage {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TrialRunTest : public ::testing::Test {
 protected:
  const at::Tensor weight = at::rand({4, 4});
  const at::Tensor hidden = at::rand({4, 4}, at::kDouble);
  const std::vector<NamedTensor> managed = {{"weight", weight}};
};

TEST_F(TrialRunTest, FindsNothingWhereEveryOperandIsListedGivenOrComputed) {
  const at::Tensor input = at::rand({2, 4});
  const AuditReport report = audit_trial_run(managed, {input}, [&] {
    const at::Tensor x = at::linear(input, weight.t()) + at::arange(4);
    static_cast<void>(at::cat({x, weight.narrow(0, 0, 1)}).mul(2).sum().item<float>());
  });
  EXPECT_THAT(report.to_text(), IsEmpty());
}

TEST_F(TrialRunTest, FindsATensorThatIsNotListedOnceAndNamesItsOperation) {
  const AuditReport report = audit_trial_run(
      managed, {}, [&] { static_cast<void>(weight.to(at::kDouble).mm(hidden).mm(hidden)); });
  ASSERT_EQ(report.findings().size(), 1U);
  EXPECT_EQ(report.findings()[0].kind, AuditKind::kUnmanagedTensor);
  EXPECT_EQ(report.findings()[0].path, "aten::mm");
  EXPECT_THAT(report.findings()[0].message, HasSubstr("Double [4, 4] on cpu"));
  EXPECT_EQ(report.findings()[0].bytes, 128);
}

TEST_F(TrialRunTest, FindsOperandsInsideListsAndInputsThatWereNotGiven) {
  const at::Tensor input = at::rand({2, 4});
  const AuditReport report = audit_trial_run(managed, {}, [&] {
    static_cast<void>(at::cat({weight, input}));
  });
  ASSERT_EQ(report.findings().size(), 1U);
  EXPECT_EQ(report.findings()[0].path, "aten::cat");
}

TEST_F(TrialRunTest, LetsTheErrorOfTheBodyThroughAndStopsLooking) {
  EXPECT_THROW(static_cast<void>(audit_trial_run(managed, {}, [] { throw 3; })), int);
  static_cast<void>(hidden.mm(hidden));  // Outside of any run: must touch nothing that is gone.
}

TEST_F(TrialRunTest, ARunInsideARunKeepsItsOperationsToItself) {
  AuditReport inner;
  const AuditReport outer = audit_trial_run(managed, {}, [&] {
    inner =
        audit_trial_run({{"hidden", hidden}}, {}, [&] { static_cast<void>(hidden.mm(hidden)); });
    static_cast<void>(weight.mm(weight));
  });
  EXPECT_THAT(inner.to_text(), IsEmpty());
  EXPECT_THAT(outer.to_text(), IsEmpty());
}

}  // namespace
}  // namespace offstage
