// SPDX-License-Identifier: Apache-2.0
// What staging would lose without a word is found before it happens: aliases, tensors that nobody
// listed, and graphs that are being captured.
#include "staging_fixture.hpp"

#include <offstage/testing/fake_capture_probe.hpp>

#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>

namespace offstage {
namespace {

using ::testing::HasSubstr;

class PinnedModuleStagerAuditTest : public StagingTest {
 protected:
  static std::string text_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "not refused";
  }
};

/// Keeps a view of its weight, made in the constructor, and an identity matrix, as plain members.
struct WithPlainMembers : torch::nn::Module {
  WithPlainMembers() {
    weight = register_parameter("weight", at::rand({8, 4}));
    view = weight.detach().view({32});
  }
  at::Tensor forward(const at::Tensor& x) { return x.mm(identity).mm(weight); }
  at::Tensor weight;
  at::Tensor view;
  at::Tensor identity = at::eye(8);
};

// case C03: a cached view that is not listed is found, whoever holds it.
TEST_F(PinnedModuleStagerAuditTest, AViewThatIsNotListedIsOneFindingThatNamesItsWeight) {
  WithPlainMembers module;
  const auto stager = stage(named_tensors(module));
  const AuditReport report = stager->audit();
  ASSERT_EQ(report.findings().size(), 1U);
  EXPECT_EQ(report.findings()[0].kind, AuditKind::kUnmanagedAlias);
  EXPECT_EQ(report.findings()[0].path, "weight");
  EXPECT_THAT(report.findings()[0].message,
              HasSubstr("more tensors or storages that are not listed"));
  ASSERT_EQ(count_events(EventKind::kAuditFinding), 1U);
  EXPECT_EQ(sink->events(EventKind::kAuditFinding)[0].reason, "unmanaged_alias");
}

TEST_F(PinnedModuleStagerAuditTest, AViewThatIsListedMovesAlongAndIsNoFinding) {
  WithPlainMembers module;
  std::vector<NamedTensor> tensors = named_tensors(module);
  tensors.push_back({"view", module.view});
  const auto stager = stage(std::move(tensors), {.strict_audit = true});
  EXPECT_TRUE(stager->audit().is_clean());
  stager->load();
  EXPECT_EQ(module.view.device(), device());
  EXPECT_EQ(module.view.cpu()[5].item<float>(), module.weight.cpu()[1][1].item<float>());
  stager->offload();
}

/// Three buffers that are views of one plain member.
struct Fused : torch::nn::Module {
  Fused() {
    const auto parts = qkv.chunk(3);
    query = register_buffer("query", parts[0]);
    key = register_buffer("key", parts[1]);
    value = register_buffer("value", parts[2]);
  }
  at::Tensor qkv = at::rand({6, 4});
  at::Tensor query, key, value;
};

TEST_F(PinnedModuleStagerAuditTest, TheTensorThatListedOnesAreViewsOfIsAFindingIfItIsHeld) {
  for (const bool inference : {false, true}) {
    const c10::InferenceMode mode(inference);
    Fused module;
    EXPECT_EQ(stage(named_tensors(module))->audit().count(AuditKind::kUnmanagedAlias), 1);
  }
}

TEST_F(PinnedModuleStagerAuditTest, TheTensorThatListedOnesAreViewsOfIsNoFindingIfNobodyHoldsIt) {
  Fused module;
  module.qkv.reset();
  EXPECT_EQ(stage(named_tensors(module))->audit().count(AuditKind::kUnmanagedAlias), 0);
  const c10::InferenceMode mode;
  Fused other;
  other.qkv.reset();
  EXPECT_EQ(stage(named_tensors(other))->audit().count(AuditKind::kUnmanagedAlias), 0);
}

TEST_F(PinnedModuleStagerAuditTest, AViewThatOtherTypesDescribeIsNoFindingByItself) {
  const at::Tensor frequencies = at::view_as_real(at::polar(at::ones({4}), at::ones({4})));
  EXPECT_TRUE(stage({{"frequencies", frequencies}})->audit().is_clean());
  EXPECT_TRUE(stage({{"conjugate", at::ones({4}, at::kComplexFloat).conj()}})->audit().is_clean());
}

TEST_F(PinnedModuleStagerAuditTest, AStrictAuditRefusesTheViewBeforeAnythingWasChanged) {
  WithPlainMembers module;
  const void* data = module.weight.data_ptr();
  const std::string text =
      text_of([&] { stage(named_tensors(module), {.name = "dit", .strict_audit = true}); });
  EXPECT_THAT(text, HasSubstr("component 'dit': refused by its audit"));
  EXPECT_THAT(text, HasSubstr("unmanaged_alias 'weight'"));
  EXPECT_EQ(module.weight.data_ptr(), data);
  EXPECT_TRUE(module.weight.is_alias_of(module.view));
}

// case C06: an unregistered tensor is found by running the module once.
TEST_F(PinnedModuleStagerAuditTest, ATrialRunNamesTheTensorThatNobodyListed) {
  WithPlainMembers module;
  module.view = at::Tensor();
  const auto trial = [&module] { static_cast<void>(module.forward(at::rand({2, 8}))); };
  const std::string text =
      text_of([&] { stage(named_tensors(module), {.strict_audit = true, .trial_run = trial}); });
  EXPECT_THAT(text, HasSubstr("unmanaged_tensor 'aten::mm'"));
  EXPECT_THAT(text, HasSubstr("Float [8, 8] on cpu"));
  EXPECT_TRUE(module.weight.is_cpu());

  const auto stager = stage(named_tensors(module), {.trial_run = trial});
  EXPECT_EQ(stager->audit().count(AuditKind::kUnmanagedTensor), 1);
  EXPECT_EQ(stager->audit().findings()[0].bytes, 256);
  stager->load();
  EXPECT_TRUE(module.identity.is_cpu()) << "it stays behind, as was reported";
}

TEST_F(PinnedModuleStagerAuditTest, ATrialRunOfAModuleThatListsEverythingFindsNothing) {
  torch::nn::Linear linear(8, 4);
  const auto trial = [&linear] {
    const at::Tensor x = linear->forward(at::rand({2, 8}));
    static_cast<void>((at::softmax(x * 2.5 + 1, 1).sum() > 0).item<bool>());
  };
  EXPECT_NO_THROW(stage(named_tensors(linear), {.strict_audit = true, .trial_run = trial}));
}

TEST_F(PinnedModuleStagerAuditTest, ATrialRunInInferenceModeSeesTheSame) {
  const c10::InferenceMode mode;
  WithPlainMembers module;
  module.view = at::Tensor();
  const auto trial = [&module] { static_cast<void>(module.forward(at::rand({2, 8}))); };
  const auto stager = stage(named_tensors(module), {.trial_run = trial});
  EXPECT_EQ(stager->audit().count(AuditKind::kUnmanagedTensor), 1);
}

TEST_F(PinnedModuleStagerAuditTest, WhatATrialRunThrowsPassesAndNothingWasChanged) {
  torch::nn::Linear linear(8, 4);
  const void* data = linear->weight.data_ptr();
  EXPECT_THROW(stage(named_tensors(linear), {.trial_run = [] { throw 7; }}), int);
  EXPECT_EQ(linear->weight.data_ptr(), data);
}

TEST_F(PinnedModuleStagerAuditTest, TiedTensorsAreListedAndAreNoDefect) {
  const at::Tensor weight = at::rand({4, 4});
  const auto stager =
      stage({{"in", weight}, {"out", weight}, {"row", weight[0]}}, {.strict_audit = true});
  const AuditReport report = stager->audit();
  EXPECT_TRUE(report.is_clean());
  EXPECT_EQ(
      report.to_text(),
      "tied_tensor 'out': the same tensor as 'in'\ntied_tensor 'in': shares memory with row\n");
  EXPECT_EQ(count_events(EventKind::kAuditFinding), 0U);
}

TEST_F(PinnedModuleStagerAuditTest, WhatIsAddedIsAuditedToo) {
  const auto stager = stage(numbered_tensors(1, 8), {.strict_audit = true});
  const at::Tensor weight = at::rand({4, 4});
  const at::Tensor view = weight[1];
  EXPECT_THROW(stager->add("lora", {{"weight", weight}}), StagingError);
  EXPECT_NO_THROW(stager->add("lora", {{"weight", weight}, {"view", view}}));
}

// --- a graph is being captured ---

class CaptureTest : public StagingTest {
 protected:
  CaptureTest() {
    context = DeviceContext::create(
        device(),
        {.host_memory = simulator.host_memory(), .telemetry = telemetry, .capture_probe = probe});
  }
  std::shared_ptr<testing::FakeCaptureProbe> probe = std::make_shared<testing::FakeCaptureProbe>();
  std::vector<NamedTensor> tensors = numbered_tensors(2, 8);
};

TEST_F(CaptureTest, NothingMovesWhileAGraphIsCaptured) {
  const auto stager = stage(tensors, {.name = "dit"});
  probe->capture_everything();
  EXPECT_THROW(stager->load(), StateError);
  EXPECT_THROW(stager->update({}), StateError);
  EXPECT_THROW(stager->add("x", {{"x", at::ones({2})}}), StateError);
  EXPECT_THROW(stager->remove("x"), StateError);
  EXPECT_THROW(stage(numbered_tensors(1, 1)), StateError);
  EXPECT_FALSE(stager->is_loaded());
  probe->capture_nothing();
  stager->load();
  probe->capture_everything();
  EXPECT_THROW(stager->write_back(), StateError);
  try {
    stager->offload();
    FAIL() << "offloaded";
  } catch (const StateError& error) {
    EXPECT_THAT(error.what(), HasSubstr("component 'dit': offload: a graph is being captured"));
  }
  EXPECT_TRUE(stager->is_loaded());
  EXPECT_EQ(tensors[1].tensor.device(), device());
  probe->capture_nothing();
  stager->offload();
}

TEST_F(CaptureTest, OnlyTheCurrentAndTheCopyStreamMatter) {
  const auto stager = stage(tensors);
  const c10::Stream other = new_stream();
  probe->capture(other);
  EXPECT_NO_THROW(stager->load());
  {
    const c10::StreamGuard guard(other);
    EXPECT_THROW(stager->offload(), StateError);
  }
  EXPECT_NO_THROW(stager->offload());
  probe->capture(context->copy_stream());
  EXPECT_THROW(stager->load(), StateError);
}

}  // namespace
}  // namespace offstage
