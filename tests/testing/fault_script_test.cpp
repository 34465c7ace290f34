// SPDX-License-Identifier: Apache-2.0
#include "simulator_fixture.hpp"

#include <offstage/base/error.hpp>
#include <offstage/testing/fault_script.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/util/Exception.h>

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace offstage::testing {
namespace {

/// What a call threw, in a word.
std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::OutOfMemoryError&) {
    return "out of memory";
  } catch (const c10::AcceleratorError& error) {
    return "accelerator " + std::to_string(error.get_error_code());
  } catch (const c10::Error&) {
    return "libtorch";
  } catch (const std::runtime_error&) {
    return "standard";
  } catch (int) {
    return "foreign";
  }
  return "nothing";
}

class FaultScriptTest : public SimulatorTest {
 protected:
  std::vector<std::string> throws(FaultWhen when, int calls) {
    script_.fail(FaultPoint::kCopy, when, Fault::kStandard);
    std::vector<std::string> results;
    for (int i = 0; i < calls; ++i) {
      results.push_back(thrown_by([&] { script_.enter(FaultPoint::kCopy); }));
    }
    return results;
  }

  FaultScript script_;
};

TEST_F(FaultScriptTest, TheNthCallEveryNthOrAllFromTheNthOn) {
  const std::string no = "nothing";
  const std::string yes = "standard";
  EXPECT_EQ(throws(FaultWhen::nth(2), 4), (std::vector{no, yes, no, no}));
  script_.clear();
  EXPECT_EQ(throws(FaultWhen::every_nth(2), 5), (std::vector{no, yes, no, yes, no}));
  script_.clear();
  EXPECT_EQ(throws(FaultWhen::from(3), 4), (std::vector{no, no, yes, yes}));
  EXPECT_EQ(script_.calls(FaultPoint::kCopy), 13);
  EXPECT_EQ(script_.hits(), 1 + 2 + 2);
}

TEST_F(FaultScriptTest, OnlyItsKindOfCallFails) {
  script_.fail(FaultPoint::kCopy, FaultWhen::from(1), Fault::kLibTorch);
  EXPECT_EQ(thrown_by([&] { script_.enter(FaultPoint::kWait); }), "nothing");
  EXPECT_EQ(thrown_by([&] { script_.enter(FaultPoint::kCopy); }), "libtorch");
}

TEST_F(FaultScriptTest, EachFaultIsAnExceptionOfItsKind) {
  const std::map<Fault, std::string> expected = {{Fault::kOutOfMemory, "out of memory"},
                                                 {Fault::kAccelerator, "accelerator 719"},
                                                 {Fault::kLibTorch, "libtorch"},
                                                 {Fault::kStandard, "standard"},
                                                 {Fault::kForeign, "foreign"}};
  for (const auto& [fault, name] : expected) {
    script_.clear();
    script_.fail(FaultPoint::kAllocate, FaultWhen::nth(1), fault);
    EXPECT_EQ(thrown_by([&] { script_.enter(FaultPoint::kAllocate); }), name);
  }
}

TEST_F(FaultScriptTest, AnAsynchronousErrorSurfacesAtTheNextCallOfAnyKindOnce) {
  script_.fail(FaultPoint::kKernel, FaultWhen::nth(1), Fault::kAsynchronous);
  EXPECT_EQ(thrown_by([&] { EXPECT_TRUE(script_.enter(FaultPoint::kKernel)); }), "nothing");
  EXPECT_EQ(thrown_by([&] { script_.enter(FaultPoint::kAllocate); }), "accelerator 700");
  EXPECT_EQ(thrown_by([&] { script_.enter(FaultPoint::kAllocate); }), "nothing");
}

TEST_F(FaultScriptTest, ADeadDeviceStaysDead) {
  script_.fail(FaultPoint::kSynchronize, FaultWhen::nth(1), Fault::kDeath);
  EXPECT_EQ(thrown_by([&] { script_.enter(FaultPoint::kSynchronize); }), "accelerator 719");
  EXPECT_EQ(thrown_by([&] { script_.enter(FaultPoint::kStatistics); }), "accelerator 719");
  EXPECT_EQ(thrown_by([&] { script_.enter(FaultPoint::kWait); }), "accelerator 719");
  script_.clear();
  EXPECT_EQ(thrown_by([&] { script_.enter(FaultPoint::kWait); }), "nothing");
}

TEST_F(FaultScriptTest, AnIgnoredCallIsToldFromOneThatIsDone) {
  script_.fail(FaultPoint::kWait, FaultWhen::nth(2), Fault::kIgnored);
  EXPECT_TRUE(script_.enter(FaultPoint::kWait));
  EXPECT_FALSE(script_.enter(FaultPoint::kWait));
  EXPECT_TRUE(script_.enter(FaultPoint::kWait));
}

TEST_F(FaultScriptTest, RulesAreChecked) {
  EXPECT_THROW(script_.fail(FaultPoint::kCopy, FaultWhen::nth(0), Fault::kLibTorch),
               InvalidArgument);
  EXPECT_THROW(script_.fail(FaultPoint::kCopy, {1, -1}, Fault::kLibTorch), InvalidArgument);
  EXPECT_THROW(script_.delay(FaultPoint::kCopy, FaultWhen::nth(1), std::chrono::nanoseconds(-1)),
               InvalidArgument);
}

TEST_F(FaultScriptTest, OnlyWaitsAndRecordsCanBeIgnored) {
  for (std::size_t i = 0; i < kFaultPoints; ++i) {
    const auto point = static_cast<FaultPoint>(i);
    const bool can_be = point == FaultPoint::kRecord || point == FaultPoint::kWait ||
                        point == FaultPoint::kSynchronize;
    if (can_be) {
      EXPECT_NO_THROW(script_.fail(point, FaultWhen::nth(1), Fault::kIgnored)) << to_string(point);
    } else {
      EXPECT_THROW(script_.fail(point, FaultWhen::nth(1), Fault::kIgnored), InvalidArgument)
          << to_string(point);
    }
  }
}

TEST_F(FaultScriptTest, AScriptedShortageOfMemoryIsCountedAsOne) {
  const SimulatorCounters before = simulator_.counters();
  simulator_.faults().fail(FaultPoint::kAllocate, FaultWhen::nth(1), Fault::kOutOfMemory);
  EXPECT_THROW((void)at::empty({4}, at::TensorOptions().device(simulator_.device())),
               c10::OutOfMemoryError);
  SimulatorCounters expected;
  expected.out_of_memory = 1;
  EXPECT_EQ(simulator_.counters() - before, expected);
}

// Every kind of call reaches the script, and fails there before anything has happened.
TEST_F(FaultScriptTest, EveryPointOfTheDeviceIsReached) {
  const auto memory = simulator_.host_memory();
  void* data = memory->allocate(4096);
  void* pinned = memory->allocate(4096);
  memory->pin(pinned, 4096);
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(default_stream());
  at::Tensor x = at::ones({4}, at::TensorOptions().device(simulator_.device()));
  auto* const allocator = c10::getDeviceAllocator(c10::DeviceType::PrivateUse1);
  const auto empty = [&](bool host) {
    const auto options = host ? at::TensorOptions().pinned_memory(true)
                              : at::TensorOptions().device(simulator_.device());
    (void)at::empty({4}, options);
  };
  const std::map<FaultPoint, std::function<void()>> calls = {
      {FaultPoint::kAllocate, [&] { empty(false); }},
      {FaultPoint::kCopy, [&] { x.copy_(at::ones({4})); }},
      {FaultPoint::kKernel, [&] { x.add_(1); }},
      {FaultPoint::kRecord, [&] { event.record(default_stream()); }},
      {FaultPoint::kWait, [&] { event.block(new_stream()); }},
      {FaultPoint::kQuery, [&] { (void)event.query(); }},
      {FaultPoint::kSynchronize, [&] { event.synchronize(); }},
      {FaultPoint::kPin, [&] { empty(true); }},
      {FaultPoint::kRegister, [&] { memory->pin(data, 4096); }},
      {FaultPoint::kUnregister, [&] { memory->unpin(pinned, 4096); }},
      {FaultPoint::kStatistics, [&] { (void)allocator->getMemoryInfo(0); }},
      {FaultPoint::kRelease, [&] { allocator->emptyCache(); }},
  };
  ASSERT_EQ(calls.size(), kFaultPoints);
  for (const auto& [point, call] : calls) {
    FaultScript& faults = simulator_.faults();
    faults.fail(point, FaultWhen::nth(1), Fault::kAccelerator);
    const auto hits = faults.hits();
    EXPECT_EQ(thrown_by(call), "accelerator 719") << to_string(point);
    EXPECT_EQ(faults.hits(), hits + 1) << to_string(point);
    faults.clear();
    if (point == FaultPoint::kUnregister) continue;
    EXPECT_EQ(thrown_by(call), "nothing") << to_string(point);
  }
  EXPECT_TRUE(x.cpu().equal(at::full({4}, 2.0F))) << "the failed copy and kernel did nothing";
  EXPECT_EQ(thrown_by([&] { (void)default_stream().query(); }), "nothing");
  memory->unpin(data, 4096);
  memory->unpin(pinned, 4096);
  memory->free(data, 4096);
  memory->free(pinned, 4096);
}

}  // namespace
}  // namespace offstage::testing
