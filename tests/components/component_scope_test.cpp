// SPDX-License-Identifier: Apache-2.0
#include "stageable_doubles.hpp"

#include <offstage/components/component_scope.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace offstage {
namespace {

using ::testing::InSequence;
using ::testing::Return;
using ::testing::Throw;

struct BodyError {};  // Nothing that derives from std::exception.

class ComponentScopeTest : public ComponentFixture {
 protected:
  Component component{"text_encoder", stageable, {}, cache, sink};

  void expect_loads_and_offloads(int times) {
    EXPECT_CALL(*stageable, load).Times(times);
    EXPECT_CALL(*stageable, offload).Times(times);
  }
};

// --- Required --------------------------------------------------------------------------------

TEST_F(ComponentScopeTest, BodyAndOffloadFailTheBodysErrorLeavesAfterOneForcedRelease) {
  EXPECT_CALL(*stageable, load).Times(1);
  EXPECT_CALL(*stageable, offload).WillOnce(Throw(std::logic_error("offload")));
  try {
    run(component, [] { throw std::runtime_error("body"); });
    FAIL() << "no error left";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "body");
  }
  EXPECT_EQ(forced_releases(), 1);
  ASSERT_EQ(dropped_errors(), 1U);
  const auto dropped = sink->events(EventKind::kErrorDropped)[0];
  EXPECT_EQ(dropped.component, "text_encoder");
  EXPECT_EQ(dropped.message, "offload");
  EXPECT_EQ(dropped.reason, "offload_after_failure");
  EXPECT_EQ(dropped.device, kTestDevice);
}

TEST_F(ComponentScopeTest, OffloadFailsOnTheSecondUseItsErrorLeavesAfterOneForcedRelease) {
  EXPECT_CALL(*stageable, load).Times(2);
  EXPECT_CALL(*stageable, offload)
      .WillOnce(Return())
      .WillOnce(Throw(std::logic_error("second offload")));
  run(component, [] {});
  EXPECT_EQ(forced_releases(), 0);
  EXPECT_THROW(run(component, [] {}), std::logic_error);
  EXPECT_EQ(forced_releases(), 1);
  EXPECT_EQ(dropped_errors(), 0U);
}

TEST_F(ComponentScopeTest, AResidentComponentIsNeitherLoadedNorOffloaded) {
  EXPECT_CALL(*stageable, load).Times(1);  // By enable(); a scope's load would be the second.
  Component resident_one("text_encoder", stageable, resident(), cache, sink);
  resident_one.enable();
  run(resident_one, [] {});
  { const ComponentScope scope(resident_one); }
  EXPECT_THROW(run(resident_one, [] { throw BodyError(); }), BodyError);
  EXPECT_EQ(forced_releases(), 0);
  EXPECT_EQ(resident_one.holders(), 0);
}

// --- Order and results -----------------------------------------------------------------------

TEST_F(ComponentScopeTest, LoadsThenRunsThenOffloads) {
  ::testing::MockFunction<void()> body;
  {
    const InSequence order;
    EXPECT_CALL(*stageable, load);
    EXPECT_CALL(body, Call);
    EXPECT_CALL(*stageable, offload);
  }
  run(component, body.AsStdFunction());
  EXPECT_EQ(forced_releases(), 0);
  EXPECT_EQ(telemetry->calls().release_cached, 0);
}

TEST_F(ComponentScopeTest, ReturnsWhatTheBodyReturns) {
  expect_loads_and_offloads(5);
  int value = 5;
  static_assert(std::is_void_v<decltype(run(component, [] {}))>);
  run(component, [] {});
  EXPECT_EQ(run(component, [] { return std::string("picture"); }), "picture");
  int& reference = run(component, [&]() -> int& { return value; });
  EXPECT_EQ(&reference, &value);
  int&& moved = run(component, [&]() -> int&& { return std::move(value); });
  EXPECT_EQ(&moved, &value);
  const std::unique_ptr<int> only = run(component, [] { return std::make_unique<int>(9); });
  EXPECT_EQ(*only, 9);
}

TEST_F(ComponentScopeTest, AcceptsABodyThatCanOnlyBeMovedAndCalledOnce) {
  expect_loads_and_offloads(1);
  struct Once {
    std::unique_ptr<int> value = std::make_unique<int>(3);
    int operator()() && { return *value; }
  };
  EXPECT_EQ(run(component, Once()), 3);
}

TEST_F(ComponentScopeTest, ResultIsNotReturnedIfTheOffloadFails) {
  EXPECT_CALL(*stageable, load).Times(1);
  EXPECT_CALL(*stageable, offload).WillOnce(Throw(std::logic_error("offload")));
  const auto alive = std::make_shared<int>(1);
  EXPECT_THROW(run(component, [&] { return alive; }), std::logic_error);
  EXPECT_EQ(alive.use_count(), 1) << "the result of the body leaked";
}

// --- Failures --------------------------------------------------------------------------------

TEST_F(ComponentScopeTest, AnErrorOfAnyTypeTakesTheFailurePath) {
  expect_loads_and_offloads(2);
  EXPECT_THROW(run(component, [] { throw BodyError(); }), BodyError);
  EXPECT_THROW(run(component, []() -> int { throw 42; }), int);
  EXPECT_EQ(forced_releases(), 2);
  EXPECT_EQ(component.holders(), 0);
}

TEST_F(ComponentScopeTest, AFailingForcedReleaseDoesNotHideTheBodysError) {
  expect_loads_and_offloads(1);
  telemetry->fail_release(testing::FakeFailure::kNotStd);
  EXPECT_THROW(run(component, [] { throw BodyError(); }), BodyError);
  EXPECT_EQ(sink->count(EventKind::kReleaseFailed), 1U);
}

TEST_F(ComponentScopeTest, AFailingForcedReleaseDoesNotHideTheOffloadsError) {
  EXPECT_CALL(*stageable, load).Times(1);
  EXPECT_CALL(*stageable, offload).WillOnce(Throw(std::logic_error("offload")));
  telemetry->fail_release(testing::FakeFailure::kStdException);
  EXPECT_THROW(run(component, [] {}), std::logic_error);
  EXPECT_EQ(sink->count(EventKind::kReleaseFailed), 1U);
}

TEST_F(ComponentScopeTest, AFailingLoadRunsTheFailurePathButNotTheBody) {
  EXPECT_CALL(*stageable, load).WillOnce(Throw(std::runtime_error("load")));
  EXPECT_CALL(*stageable, offload).WillOnce(Throw(std::logic_error("offload")));
  bool ran = false;
  EXPECT_THROW(run(component, [&] { ran = true; }), std::runtime_error);
  EXPECT_FALSE(ran);
  EXPECT_EQ(forced_releases(), 1);
  EXPECT_EQ(dropped_errors(), 1U);
  EXPECT_EQ(component.holders(), 0);
}

TEST_F(ComponentScopeTest, IsUsableAfterEveryKindOfFailure) {
  EXPECT_CALL(*stageable, load)
      .WillOnce(Throw(std::runtime_error("load")))
      .WillRepeatedly(Return());
  EXPECT_CALL(*stageable, offload)
      .WillOnce(Return())
      .WillOnce(Throw(std::runtime_error("offload")))
      .WillRepeatedly(Return());
  EXPECT_THROW(run(component, [] {}), std::runtime_error);
  EXPECT_THROW(run(component, [] {}), std::runtime_error);
  EXPECT_THROW(run(component, [] { throw BodyError(); }), BodyError);
  EXPECT_NO_THROW(run(component, [] {}));
}

TEST_F(ComponentScopeTest, WithoutACacheAndASinkFailuresAreStillOrderly) {
  EXPECT_CALL(*stageable, load).Times(1);
  EXPECT_CALL(*stageable, offload).WillOnce(Throw(std::logic_error("offload")));
  Component bare("text_encoder", stageable);
  EXPECT_THROW(run(bare, [] { throw BodyError(); }), BodyError);
}

// --- Forced releases with a stager that handles its own failures --------------------------------

class StagerScopeTest : public ComponentFixture {
 protected:
  Component component{"text_encoder", stager, {}, cache, sink};
};

TEST_F(StagerScopeTest, ABodyErrorIsOneReleaseByTheGuard) {
  EXPECT_THROW(run(component, [] { throw BodyError(); }), BodyError);
  EXPECT_EQ(forced_releases(), 1);
}

TEST_F(StagerScopeTest, ABodyErrorWithAFailingOffloadIsOneByEach) {
  stager->fail_offload = true;
  EXPECT_THROW(run(component, [] { throw BodyError(); }), BodyError);
  EXPECT_EQ(forced_releases(), 2);
}

TEST_F(StagerScopeTest, AFailingLoadIsOneByTheStagerAlone) {
  stager->fail_load = true;
  EXPECT_THROW(run(component, [] {}), std::runtime_error);
  EXPECT_EQ(forced_releases(), 1);
}

TEST_F(StagerScopeTest, AFailingOffloadAfterSuccessIsOneByTheStagerAlone) {
  stager->fail_offload = true;
  EXPECT_THROW(run(component, [] {}), std::runtime_error);
  EXPECT_EQ(forced_releases(), 1);
}

// --- The scope as an object -------------------------------------------------------------------

TEST_F(ComponentScopeTest, CloseOffloadsOnceAndThrowsWhatFails) {
  EXPECT_CALL(*stageable, load).Times(1);
  EXPECT_CALL(*stageable, offload).WillOnce(Throw(std::logic_error("offload")));
  ComponentScope scope(component);
  EXPECT_TRUE(component.loaded());
  EXPECT_THROW(scope.close(), std::logic_error);
  EXPECT_FALSE(component.loaded());
  EXPECT_NO_THROW(scope.close());
  scope.fail();
  EXPECT_EQ(forced_releases(), 1);
}

TEST_F(ComponentScopeTest, AScopeThatIsNotClosedOffloadsWhenDestroyed) {
  expect_loads_and_offloads(1);
  { const ComponentScope scope(component); }
  EXPECT_EQ(component.holders(), 0);
  EXPECT_EQ(forced_releases(), 0);
}

TEST_F(ComponentScopeTest, AnErrorInTheDestructorIsReportedAndNeverTerminates) {
  EXPECT_CALL(*stageable, load).Times(1);
  EXPECT_CALL(*stageable, offload).WillOnce(Throw(BodyError()));
  { const ComponentScope scope(component); }
  EXPECT_EQ(forced_releases(), 1);
  ASSERT_EQ(dropped_errors(), 1U);
  EXPECT_EQ(sink->events(EventKind::kErrorDropped)[0].reason, "offload_in_destructor");
}

TEST_F(ComponentScopeTest, AScopeLeftByAnExceptionTakesTheFailurePath) {
  expect_loads_and_offloads(1);
  const auto use = [&] {
    const ComponentScope scope(component);
    throw BodyError();
  };
  EXPECT_THROW(use(), BodyError);
  EXPECT_EQ(forced_releases(), 1);
}

TEST_F(ComponentScopeTest, AScopeOpenedWhileAnotherExceptionUnwindsIsJudgedByItself) {
  expect_loads_and_offloads(1);
  struct UsesInDestructor {
    Component& used;
    ~UsesInDestructor() { const ComponentScope scope(used); }
  };
  const auto fails = [&] {
    const UsesInDestructor uses{component};
    throw BodyError();
  };
  EXPECT_THROW(fails(), BodyError);
  EXPECT_EQ(forced_releases(), 0) << "the scope's own body has succeeded";
}

TEST_F(ComponentScopeTest, AFailingLoadLeavesNoScopeBehind) {
  EXPECT_CALL(*stageable, load).WillOnce(Throw(std::runtime_error("load")));
  EXPECT_CALL(*stageable, offload).Times(1);
  EXPECT_THROW(ComponentScope{component}, std::runtime_error);
  EXPECT_EQ(component.holders(), 0);
}

// --- Nesting ---------------------------------------------------------------------------------

TEST_F(ComponentScopeTest, NestedScopesOffloadWhenTheLastLeavesAndEachMakesItsStreamWait) {
  ::testing::MockFunction<void(const std::string&)> reached;
  {
    const InSequence order;
    EXPECT_CALL(*stageable, load);
    EXPECT_CALL(*stageable, load);  // Loaded already: only the stream of the second scope waits.
    EXPECT_CALL(reached, Call("inner closed"));
    EXPECT_CALL(*stageable, offload);
  }
  run(component, [&] {
    run(component, [&] { EXPECT_EQ(component.holders(), 2); });
    reached.Call("inner closed");
    EXPECT_EQ(component.holders(), 1);
  });
  EXPECT_EQ(component.holders(), 0);
}

TEST_F(ComponentScopeTest, ABodyThatFailsWhileOthersHoldReleasesOnceAndOffloadsNothing) {
  EXPECT_CALL(*stageable, load).Times(2);
  ComponentScope outer(component);
  EXPECT_THROW(run(component, [] { throw BodyError(); }), BodyError);
  EXPECT_EQ(forced_releases(), 1);
  EXPECT_EQ(component.holders(), 1);
  ::testing::Mock::VerifyAndClearExpectations(stageable.get());
  EXPECT_CALL(*stageable, offload).Times(1);
  outer.close();
  EXPECT_EQ(forced_releases(), 1);
}

TEST_F(ComponentScopeTest, ALoadThatFailsWhileOthersHoldLeavesTheirsAlone) {
  EXPECT_CALL(*stageable, load).WillOnce(Return()).WillOnce(Throw(std::runtime_error("wait")));
  EXPECT_CALL(*stageable, offload).Times(0);
  ComponentScope outer(component);
  EXPECT_THROW(run(component, [] {}), std::runtime_error);
  EXPECT_EQ(component.holders(), 1);
  EXPECT_EQ(forced_releases(), 1);
  ::testing::Mock::VerifyAndClearExpectations(stageable.get());
  EXPECT_CALL(*stageable, offload).Times(1);
  outer.close();
}

}  // namespace
}  // namespace offstage
