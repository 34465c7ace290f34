// SPDX-License-Identifier: Apache-2.0
#include "stageable_doubles.hpp"

#include <offstage/base/error.hpp>
#include <offstage/components/component.hpp>
#include <offstage/components/component_scope.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

namespace offstage {
namespace {

using ::testing::HasSubstr;
using ::testing::InSequence;
using ::testing::Throw;

class ComponentTest : public ComponentFixture {
 protected:
  Component resident_component{"vae", stageable, resident(), cache, sink};
};

TEST_F(ComponentTest, KnowsWhatItWasMadeOf) {
  EXPECT_EQ(resident_component.path(), "vae");
  EXPECT_EQ(resident_component.placement(), resident());
  EXPECT_FALSE(resident_component.staged());
  EXPECT_TRUE(Component("text_encoder", stageable).staged());
  EXPECT_FALSE(Component("tokenizer").staged());
  EXPECT_THROW(Component(""), InvalidArgument);
}

TEST_F(ComponentTest, AResidentComponentIsLoadedOnceWhenEnabledAndOffloadedOnlyWhenDisabled) {
  {
    const InSequence order;
    EXPECT_CALL(*stageable, load).Times(1);
    EXPECT_CALL(*stageable, offload).Times(1);
  }
  EXPECT_FALSE(resident_component.loaded());
  resident_component.enable();
  resident_component.enable();
  EXPECT_TRUE(resident_component.loaded());
  for (int use = 0; use < 3; ++use) run(resident_component, [] {});
  EXPECT_TRUE(resident_component.loaded());
  resident_component.disable();
  resident_component.disable();
  EXPECT_FALSE(resident_component.loaded());
}

TEST_F(ComponentTest, AResidentComponentCanBeEnabledAgain) {
  EXPECT_CALL(*stageable, load).Times(2);
  EXPECT_CALL(*stageable, offload).Times(1);
  resident_component.enable();
  resident_component.disable();
  resident_component.enable();
  EXPECT_TRUE(resident_component.loaded());
}

TEST_F(ComponentTest, AResidentComponentThatIsNotEnabledCannotBeUsed) {
  bool ran = false;
  try {
    run(resident_component, [&] { ran = true; });
    FAIL() << "the body would have run with its weights in host memory";
  } catch (const StateError& error) {
    EXPECT_THAT(error.what(), HasSubstr("component 'vae': is resident but not on the device"));
  }
  EXPECT_FALSE(ran);
  EXPECT_EQ(resident_component.holders(), 0);
}

TEST_F(ComponentTest, AFailedEnableReleasesOnceAndLeavesItsError) {
  EXPECT_CALL(*stageable, load).WillOnce(Throw(std::runtime_error("no memory")));
  EXPECT_CALL(*stageable, offload).Times(1);
  EXPECT_THROW(resident_component.enable(), std::runtime_error);
  EXPECT_FALSE(resident_component.loaded());
  EXPECT_EQ(forced_releases(), 1);
}

TEST_F(ComponentTest, AFailedDisableReleasesOnceAndLeavesItsError) {
  EXPECT_CALL(*stageable, load).Times(1);
  EXPECT_CALL(*stageable, offload).WillOnce(Throw(std::runtime_error("lost")));
  resident_component.enable();
  EXPECT_THROW(resident_component.disable(), std::runtime_error);
  EXPECT_FALSE(resident_component.loaded());
  EXPECT_EQ(forced_releases(), 1);
}

TEST_F(ComponentTest, AResidentComponentInUseIsNotDisabled) {
  EXPECT_CALL(*stageable, load).Times(1);
  resident_component.enable();
  ComponentScope scope(resident_component);
  EXPECT_THROW(resident_component.disable(), StateError);
  EXPECT_TRUE(resident_component.loaded());
  scope.close();
}

TEST_F(ComponentTest, EnablingAStagedOneMovesNothing) {
  Component staged("text_encoder", stageable, {}, cache, sink);
  staged.enable();
  EXPECT_FALSE(staged.loaded());
  staged.disable();
}

TEST_F(ComponentTest, OneWithoutAStageablePassesThrough) {
  Component component("tokenizer", nullptr, {}, cache, sink);
  component.enable();
  EXPECT_EQ(run(component, [] { return 7; }), 7);
  EXPECT_THROW(run(component, [] { throw std::logic_error("body"); }), std::logic_error);
  component.disable();
  EXPECT_FALSE(component.loaded());
  EXPECT_TRUE(sink->events().empty());
}

// The last component of a pipeline has no successor that could push it out.
TEST_F(ComponentTest, TheLastComponentLeavesAtTheEndOfItsScopeUnlessItIsResident) {
  Component last("vae", stager, {}, cache, sink);
  run(last, [&] { EXPECT_EQ(stager->live_bytes(), 100); });
  EXPECT_EQ(stager->live_bytes(), 0);
  EXPECT_FALSE(last.loaded());

  const auto kept_stager = std::make_shared<FakeStager>(cache);
  Component kept("vae", kept_stager, resident(), cache, sink);
  kept.enable();
  run(kept, [] {});
  EXPECT_EQ(kept_stager->live_bytes(), 100);
  EXPECT_TRUE(kept.loaded());
  EXPECT_EQ(to_string(kept.placement().residence), "resident");
  EXPECT_EQ(to_string(kept.placement().reason), "named");
}

}  // namespace
}  // namespace offstage
