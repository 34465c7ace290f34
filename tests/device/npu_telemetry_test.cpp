// SPDX-License-Identifier: Apache-2.0
// What an npu needs of the telemetry. A binary of its own, because a process has one PrivateUse1
// name. The plug-in here is like torch_npu up to 2.12: a name and an allocator without generic
// statistics.
#include "fake_device_module.hpp"

#include <offstage/base/error.hpp>
#include <offstage/device/generic_telemetry.hpp>
#include <offstage/device/telemetry_registry.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>
#include <offstage/testing/fake_telemetry.hpp>
#include <offstage/testing/recording_sink.hpp>

#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace offstage {
namespace {

using ::testing::ElementsAre;
using testing::FakeFailure;
using testing::FakeTelemetry;
using ::testing::HasSubstr;

const c10::Device kNpu(c10::DeviceType::PrivateUse1, 0);

class AllocatorWithoutStatistics final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t /*bytes*/) override { return {}; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}
};

void install_npu() {
  static AllocatorWithoutStatistics allocator;
  c10::register_privateuse1_backend("npu");
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator);
}

MemoryFigures figures(std::int64_t reserved, std::int64_t allocated, std::int64_t free) {
  return {.allocator = {.reserved = reserved, .allocated = allocated},
          .device = {.free = free, .total = 100}};
}

/// An npu, the registry that answers for it, and a generic backend that fails as LibTorch's does.
struct Npu {
  Npu() {
    install_npu();
    generic->fail_allocator_stats(FakeFailure::kTelemetryError);
    generic->fail_device_memory(FakeFailure::kTelemetryError);
  }
  std::shared_ptr<FakeDeviceModule> module = std::make_shared<FakeDeviceModule>();
  std::shared_ptr<FakeTelemetry> generic = std::make_shared<FakeTelemetry>();
  TelemetryRegistry registry{generic};

  [[nodiscard]] RetentionDecision decide(const MemoryFigures& of_module, bool force = false) {
    module->fake.set_figures(of_module);
    BoundedAllocatorCache cache(kNpu, registry.resolve(kNpu.type()));
    cache.release_if_needed(force);
    return *cache.last_decision();
  }
  [[nodiscard]] bool retains(const MemoryFigures& of_module) {
    const RetentionDecision decision = decide(of_module);
    return !decision.released && decision.reason == RetentionReason::kWithinBounds &&
           asked_only_the_module();
  }
  [[nodiscard]] bool releases(const MemoryFigures& of_module, RetentionReason reason) {
    const RetentionDecision decision = decide(of_module);
    return decision.released && decision.reason == reason && asked_only_the_module();
  }
  [[nodiscard]] bool asked_only_the_module() const {
    return module->fake.calls().queries() > 0 && generic->calls().queries() == 0;
  }
};

/// The seven things that must hold for an npu, each true or false for a registry.
struct Check {
  const char* name;
  std::function<bool(Npu&)> holds;
};

const std::vector<Check>& checks() {
  static const std::vector<Check> all = {
      {"within bounds retains", [](Npu& npu) { return npu.retains(figures(10, 0, 80)); }},
      {"cached exactly at 25 % retains", [](Npu& npu) { return npu.retains(figures(25, 0, 70)); }},
      {"cached one byte over releases",
       [](Npu& npu) {
         return npu.releases(figures(26, 0, 70), RetentionReason::kCachedOverBound);
       }},
      {"free exactly at 5 % retains", [](Npu& npu) { return npu.retains(figures(10, 0, 5)); }},
      {"free one byte under releases",
       [](Npu& npu) { return npu.releases(figures(10, 0, 4), RetentionReason::kLowFree); }},
      {"missing telemetry releases",
       [](Npu& npu) {
         npu.module->fake.fail_allocator_stats(FakeFailure::kStdException);
         return npu.releases(figures(10, 0, 80), RetentionReason::kTelemetryFailed) &&
                npu.module->fake.calls().release_cached == 1;
       }},
      {"forced asks nothing and releases",
       [](Npu& npu) {
         const RetentionDecision decision = npu.decide(figures(10, 0, 80), /*force=*/true);
         return decision.released && decision.reason == RetentionReason::kForced &&
                npu.module->fake.calls().queries() == 0 && npu.generic->calls().queries() == 0;
       }},
  };
  return all;
}

std::vector<std::string> names_of_failing_checks(const std::function<void(Npu&)>& set_up) {
  std::vector<std::string> failing;
  for (const Check& check : checks()) {
    Npu npu;
    set_up(npu);
    if (!check.holds(npu)) failing.emplace_back(check.name);
  }
  return failing;
}

void with_npu_entry(Npu& npu) {
  npu.registry.register_module("npu", npu.module);
}

// What the registry would do if it knew nothing of npu: treat it like any other device.
void without_npu_entry(Npu& npu) {
  npu.registry.register_backend(c10::DeviceType::PrivateUse1, npu.generic);
}

TEST(NpuTelemetryTest, AllSevenChecksHoldWithTheNpuEntry) {
  ASSERT_EQ(checks().size(), 7U);
  EXPECT_THAT(names_of_failing_checks(with_npu_entry), ElementsAre());
}

TEST(NpuTelemetryTest, WithoutTheNpuEntryExactlyTheSixThatNeedItFail) {
  EXPECT_THAT(names_of_failing_checks(without_npu_entry),
              ElementsAre("within bounds retains", "cached exactly at 25 % retains",
                          "cached one byte over releases", "free exactly at 5 % retains",
                          "free one byte under releases", "missing telemetry releases"));
}

class NpuCheckTest : public ::testing::TestWithParam<Check> {};

TEST_P(NpuCheckTest, HoldsForTheRegisteredModule) {
  Npu npu;
  with_npu_entry(npu);
  EXPECT_TRUE(GetParam().holds(npu));
}

INSTANTIATE_TEST_SUITE_P(All, NpuCheckTest, ::testing::ValuesIn(checks()),
                         [](const auto& instance) {
                           std::string name(instance.param.name);
                           for (char& letter : name) {
                             if (std::isalnum(static_cast<unsigned char>(letter)) == 0)
                               letter = '_';
                           }
                           return name;
                         });

TEST(NpuTelemetryTest, AnNpuWithoutAModuleIsAnErrorThatNamesTheRemedy) {
  const Npu npu;
  try {
    (void)npu.registry.resolve(c10::DeviceType::PrivateUse1);
    FAIL() << "something answers for an npu without a module";
  } catch (const TelemetryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("register_module(\"npu\""));
  }
  EXPECT_EQ(npu.generic->calls().queries(), 0);
}

TEST(NpuTelemetryTest, EveryOtherTypeStillGetsTheGenericBackend) {
  Npu npu;
  with_npu_entry(npu);
  for (int value = 0; value < c10::COMPILE_TIME_MAX_DEVICE_TYPES; ++value) {
    const auto type = static_cast<c10::DeviceType>(value);
    if (type == c10::DeviceType::PrivateUse1) continue;
    EXPECT_EQ(npu.registry.resolve(type), npu.generic) << value;
  }
}

// The mirror of the seven: what is registered for npu answers for npu alone.
TEST(NpuTelemetryTest, ADecisionForAnyOtherTypeNeverReachesTheModule) {
  Npu npu;
  with_npu_entry(npu);
  npu.generic->fail_allocator_stats(FakeFailure::kNone);
  npu.generic->fail_device_memory(FakeFailure::kNone);
  for (const c10::DeviceType type : {c10::DeviceType::CUDA, c10::DeviceType::XPU}) {
    BoundedAllocatorCache cache(c10::Device(type, 0), npu.registry.resolve(type));
    npu.generic->set_figures(figures(30, 0, 70));
    EXPECT_TRUE(cache.release_if_needed());
    EXPECT_EQ(cache.last_decision()->reason, RetentionReason::kCachedOverBound);
  }
  EXPECT_EQ(npu.module->fake.calls(), testing::FakeTelemetryCalls{});
  EXPECT_EQ(npu.generic->calls().queries(), 4);
  EXPECT_EQ(npu.generic->calls().release_cached, 2);
}

TEST(NpuTelemetryTest, AUserMayRegisterTheGenericBackendWhereTheAllocatorHasStatistics) {
  Npu npu;
  npu.registry.register_backend("npu", npu.generic);
  EXPECT_EQ(npu.registry.resolve(c10::DeviceType::PrivateUse1), npu.generic);
}

TEST(NpuTelemetryTest, TheGenericBackendFailsOnAnAllocatorWithoutStatisticsAndNamesTheDevice) {
  install_npu();
  GenericTelemetry telemetry;
  try {
    (void)telemetry.allocator_stats(kNpu);
    FAIL() << "statistics were read from an allocator that has none";
  } catch (const TelemetryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("device type npu has no generic statistics"));
  }
}

TEST(NpuTelemetryTest, AFailingModuleIsWarnedOfWithItsCause) {
  Npu npu;
  with_npu_entry(npu);
  npu.module->fake.fail_device_memory(FakeFailure::kStdException);
  npu.module->fake.set_figures(figures(10, 0, 80));
  const auto sink = std::make_shared<testing::RecordingSink>();
  BoundedAllocatorCache cache(kNpu, npu.registry.resolve(kNpu.type()),
                              std::make_shared<FixedRetention>(), sink);
  EXPECT_TRUE(cache.release_if_needed());
  ASSERT_EQ(sink->count(EventKind::kTelemetryFailed), 1U);
  EXPECT_EQ(sink->events(EventKind::kTelemetryFailed)[0].message,
            "fake: device memory is unavailable; every decision will release the cache until it is "
            "cured");
}

}  // namespace
}  // namespace offstage
