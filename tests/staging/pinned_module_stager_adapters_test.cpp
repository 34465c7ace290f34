// SPDX-License-Identifier: Apache-2.0
// Tensors that come and go after a component was staged: adapters by call, and by surprise.
#include "staging_fixture.hpp"

#include <c10/core/StreamGuard.h>

namespace offstage {
namespace {

using ::testing::HasSubstr;

class PinnedModuleStagerAdaptersTest : public StagingTest {
 protected:
  std::vector<NamedTensor> tensors = numbered_tensors(3, 300);
  std::vector<NamedTensor> adapter = {{"lora.down", at::full({64}, 5.0F)},
                                      {"lora.up", at::full({32}, 6.0F)}};

  float value(const at::Tensor& tensor) const { return tensor.cpu()[7].item<float>(); }
};

TEST_F(PinnedModuleStagerAdaptersTest, WhatIsAddedWhileOffloadedMovesWithTheComponent) {
  const auto stager = stage(tensors);
  stager->add("style", adapter);
  EXPECT_EQ(stager->tensor_count(), 5U);
  EXPECT_EQ(stager->chunk_count(), 2U);
  EXPECT_EQ(stager->bytes(), 3 * 1536 + 1024);
  EXPECT_TRUE(adapter[0].tensor.is_pinned());
  const auto before = counters();
  stager->load();
  const auto moved = counters() - before;
  EXPECT_EQ(moved.allocations, 2);
  EXPECT_EQ(moved.copies_h2d, 2);
  EXPECT_EQ(moved.events_recorded, 1);
  EXPECT_EQ(moved.stream_waits, 1);
  EXPECT_EQ(moved.host_waits, 0);
  EXPECT_EQ(adapter[0].tensor.device(), device());
  EXPECT_EQ(value(adapter[1].tensor), 6);
  stager->offload();
  EXPECT_TRUE(adapter[1].tensor.is_cpu());
  EXPECT_EQ(simulator.memory().allocated, 0);
}

TEST_F(PinnedModuleStagerAdaptersTest, WhatIsAddedWhileLoadedIsLoadedAtOnceForEveryUser) {
  const auto stager = stage(tensors);
  stager->load();
  const c10::Stream other = new_stream();
  stager->use_on(other);
  stager->add("style", adapter);
  EXPECT_EQ(adapter[0].tensor.device(), device());
  EXPECT_EQ(value(tensors[2].tensor.narrow(0, 0, 64) + adapter[0].tensor), 7);
  {
    const c10::StreamGuard guard(other);
    EXPECT_EQ(value(adapter[1].tensor), 6);
  }
  stager->offload();
  EXPECT_TRUE(adapter[0].tensor.is_cpu());
  EXPECT_EQ(simulator.memory().allocated, 0);
}

TEST_F(PinnedModuleStagerAdaptersTest, WhatIsRemovedStaysOnTheHostAndTheRestStaysLoaded) {
  const auto stager = stage(tensors);
  stager->add("style", adapter);
  stager->load();
  stager->remove("style");
  EXPECT_TRUE(stager->is_loaded());
  EXPECT_TRUE(adapter[0].tensor.is_cpu());
  EXPECT_EQ(value(adapter[0].tensor), 5);
  EXPECT_EQ(tensors[1].tensor.device(), device());
  EXPECT_EQ(stager->bytes(), 3 * 1536);
  EXPECT_EQ(stager->tensor_count(), 3U);
  stager->offload();
  stager->load();
  EXPECT_TRUE(adapter[0].tensor.is_cpu());
  stager->offload();
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerAdaptersTest, WhatIsRemovedMayBeWrittenAtOnce) {
  for (const bool loaded : {false, true}) {
    simulator.reset();
    adapter = {{"lora.down", at::full({64}, 5.0F)}};
    const auto stager = stage(tensors);
    stager->set_cache(retaining_cache());
    stager->add("style", adapter);
    stager->load();
    const at::Tensor seen = adapter[0].tensor + 0;
    if (!loaded) stager->offload();
    const auto before = counters();
    stager->remove("style");
    EXPECT_EQ((counters() - before).host_waits, 1) << "the copy to the device has read it";
    adapter[0].tensor.fill_(77);
    EXPECT_EQ(seen.cpu()[63].item<float>(), 5);
  }
}

TEST_F(PinnedModuleStagerAdaptersTest, WhatIsRemovedWhileOffloadedGivesItsHostMemoryBack) {
  const auto pinned = simulator.pinned_bytes();
  const auto stager = stage(tensors);
  const auto base = simulator.pinned_bytes();
  stager->add("style", adapter);
  EXPECT_GT(simulator.pinned_bytes(), base);
  stager->remove("style");
  EXPECT_GT(simulator.pinned_bytes(), base) << "its tensors still live there";
  adapter.clear();
  EXPECT_EQ(simulator.pinned_bytes(), base);
  EXPECT_GT(base, pinned);
}

TEST_F(PinnedModuleStagerAdaptersTest, AdaptersAreSwitchedUnderAComponentThatStaysLoaded) {
  const auto stager = stage(tensors);
  stager->set_cache(retaining_cache());
  stager->load();
  for (int round = 0; round < 20; ++round) {
    const std::vector<NamedTensor> next = {
        {"lora.down", at::full({64 + round}, static_cast<float>(round))}};
    stager->add("style", next);
    ASSERT_EQ(value(next[0].tensor + tensors[1].tensor.narrow(0, 0, 64 + round)), round + 1);
    stager->remove("style");
  }
  stager->offload();
  EXPECT_EQ(stager->counters().loads, 1);
}

TEST_F(PinnedModuleStagerAdaptersTest, ARemovedAdapterCanBeAddedAgainAndToAnotherComponent) {
  const auto first = stage(tensors);
  const auto second = stage(numbered_tensors(1, 10), {.name = "other"});
  first->add("style", adapter);
  EXPECT_THROW(second->add("style", adapter), StagingError) << "two owners";
  first->remove("style");
  second->add("style", adapter);
  second->remove("style");
  first->add("style", adapter);
  first->load();
  EXPECT_EQ(value(adapter[0].tensor), 5);
  first->offload();
}

TEST_F(PinnedModuleStagerAdaptersTest, AddingWrongThingsNamesThemAndChangesNothing) {
  const auto stager = stage(tensors, {.name = "dit"});
  stager->add("style", adapter);
  const auto refused = [&](const char* name, std::vector<NamedTensor> more) -> std::string {
    try {
      stager->add(name, std::move(more));
    } catch (const Error& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refused("", {{"x", at::ones({3})}}), HasSubstr("the name must not be empty"));
  EXPECT_THAT(refused("style", {{"x", at::ones({3})}}), HasSubstr("'style' was added before"));
  EXPECT_THAT(refused("b", {{"t1", at::ones({3})}}), HasSubstr("'t1' is managed already"));
  EXPECT_THAT(refused("b", {{"x", tensors[0].tensor}}), HasSubstr("is already staged by"));
  EXPECT_THAT(refused("b", {{"x", at::ones({3}).to_sparse()}}), HasSubstr("is not strided"));
  EXPECT_EQ(stager->tensor_count(), 5U);
  EXPECT_THROW(stager->remove("b"), InvalidArgument);
  EXPECT_THROW(stager->remove(""), InvalidArgument);
}

TEST_F(PinnedModuleStagerAdaptersTest, AnAdapterThatDoesNotFitOffloadsAllAndIsAdopted) {
  simulator.set_capacity(0, 3 * kMiB);
  const auto stager = stage(tensors);
  stager->load();
  adapter[0].tensor = at::full({kMiB}, 5.0F);
  EXPECT_THROW(stager->add("style", adapter), c10::OutOfMemoryError);
  EXPECT_FALSE(stager->is_loaded());
  EXPECT_EQ(simulator.memory().allocated, 0);
  EXPECT_EQ(stager->counters().forced_releases, 1);
  EXPECT_EQ(stager->tensor_count(), 5U);
  expect_numbered(tensors);
  simulator.set_capacity(0, 64 * kMiB);
  stager->load();
  EXPECT_EQ(value(adapter[0].tensor), 5);
  stager->offload();
}

TEST_F(PinnedModuleStagerAdaptersTest, AFailedAddKeepsTheEditsOfTheComponent) {
  const auto stager = stage(tensors, {.edits = EditPolicy::kWriteBack});
  stager->load();
  tensors[1].tensor.add_(10);
  simulator.faults().fail(testing::FaultPoint::kCopy, testing::FaultWhen::nth(1),
                          testing::Fault::kAccelerator);
  EXPECT_ANY_THROW(stager->add("style", adapter));
  EXPECT_FALSE(stager->is_loaded());
  EXPECT_EQ(value(tensors[1].tensor), 11);
}

// --- by surprise ---

TEST_F(PinnedModuleStagerAdaptersTest, ATensorThatAppearedIsNamedAtTheNextLoad) {
  torch::nn::Linear linear(4, 3);
  const auto stager = stage(named_tensors(linear), {.source = tensor_source(linear)});
  stager->load();
  stager->offload();
  linear->register_parameter("lora_up", at::ones({3}), /*requires_grad=*/false);
  try {
    stager->load();
    FAIL() << "not noticed";
  } catch (const StateError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor 'lora_up' has appeared"));
  }
  EXPECT_FALSE(stager->is_loaded());
  EXPECT_TRUE(linear->weight.is_cpu());
  stager->add("lora", {{"lora_up", linear->named_parameters()["lora_up"]}});
  EXPECT_NO_THROW(stager->load());
}

/// A module whose parameters can be taken away and put back.
struct Changing : torch::nn::Module {
  Changing() {
    register_parameter("keep", at::ones({3}), false);
    register_parameter("drop", at::ones({3}), false);
  }
  void drop() { parameters_.erase("drop"); }
};

TEST_F(PinnedModuleStagerAdaptersTest, ATensorThatVanishedIsNamedAtTheNextLoad) {
  const auto module = std::make_shared<Changing>();
  const auto stager = stage(named_tensors(module), {.source = tensor_source(module)});
  module->drop();
  try {
    stager->load();
    FAIL() << "not noticed";
  } catch (const StateError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor 'drop' has vanished"));
  }
  EXPECT_FALSE(stager->is_loaded());
}

TEST_F(PinnedModuleStagerAdaptersTest, ATensorThatWasReplacedIsNamedAtTheNextLoad) {
  const auto module = std::make_shared<Changing>();
  const auto stager = stage(named_tensors(module), {.source = tensor_source(module)});
  module->drop();
  module->register_parameter("drop", at::zeros({3}), false);
  EXPECT_THROW(stager->load(), StateError);
}

TEST_F(PinnedModuleStagerAdaptersTest, TensorsThatWereListedByHandAreNotMissedInTheSource) {
  torch::nn::Linear linear(4, 3);
  auto listed = named_tensors(linear);
  listed.push_back({"scale", at::ones({3})});
  const auto stager = stage(listed, {.source = tensor_source(linear)});
  EXPECT_NO_THROW(stager->load());
  EXPECT_EQ(listed.back().tensor.device(), device());
}

TEST_F(PinnedModuleStagerAdaptersTest, AModuleThatStaysAsItIsLoadsAsOften) {
  const auto module = std::make_shared<Changing>();
  const auto stager = stage(named_tensors(module), {.source = tensor_source(module)});
  for (int round = 0; round < 3; ++round) {
    stager->load();
    stager->offload();
  }
  EXPECT_EQ(stager->counters().loads, 3);
}

}  // namespace
}  // namespace offstage
