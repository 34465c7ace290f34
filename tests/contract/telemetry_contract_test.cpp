// SPDX-License-Identifier: Apache-2.0
#include "../device/fake_device_allocator.hpp"
#include "../device/fake_device_module.hpp"
#include "telemetry_contract.hpp"

#include <offstage/device/generic_telemetry.hpp>
#include <offstage/device/module_telemetry.hpp>
#include <offstage/testing/fake_telemetry.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>

namespace offstage {
namespace {

const c10::Device kPlugIn(c10::DeviceType::PrivateUse1, 1);

TelemetryUnderTest fake() {
  const auto backend = std::make_shared<testing::FakeTelemetry>();
  return {.backend = backend,
          .device = kPlugIn,
          .set_figures = [=](MemoryFigures figures) { backend->set_figures(figures); },
          .break_figures =
              [=] {
                backend->fail_allocator_stats(testing::FakeFailure::kStdException);
                backend->fail_device_memory(testing::FakeFailure::kStdException);
              },
          .releases = [=] { return backend->calls().release_cached; }};
}

TelemetryUnderTest module() {
  const auto inner = std::make_shared<FakeDeviceModule>();
  return {.backend = std::make_shared<ModuleTelemetry>(inner),
          .device = kPlugIn,
          .set_figures = [=](MemoryFigures figures) { inner->fake.set_figures(figures); },
          .break_figures =
              [=] {
                inner->fake.fail_allocator_stats(testing::FakeFailure::kNotStd);
                inner->fake.fail_device_memory(testing::FakeFailure::kNotStd);
              },
          .releases = [=] { return inner->fake.calls().release_cached; }};
}

void set_allocator_figures(FakeDeviceAllocator& allocator, const MemoryFigures& figures) {
  constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  allocator.stats.reserved_bytes[kAggregate].current = figures.allocator.reserved;
  allocator.stats.allocated_bytes[kAggregate].current = figures.allocator.allocated;
  allocator.stats.inactive_split_bytes[kAggregate].current = figures.allocator.inactive_split;
  allocator.memory = {static_cast<size_t>(figures.device.free),
                      static_cast<size_t>(figures.device.total)};
}

// LibTorch's allocator interface has no words for "not known" but wrong figures and an exception.
TelemetryUnderTest generic() {
  FakeDeviceAllocator* const allocator = &installed_allocator();
  allocator->releases = 0;
  allocator->has_memory_info = true;
  return {.backend = std::make_shared<GenericTelemetry>(),
          .device = kPlugIn,
          .set_figures =
              [=](const MemoryFigures& figures) { set_allocator_figures(*allocator, figures); },
          .break_figures =
              [=] {
                set_allocator_figures(*allocator, {.allocator = {.reserved = 0, .allocated = 1}});
                allocator->has_memory_info = false;
              },
          .releases = [=] { return allocator->releases; }};
}

INSTANTIATE_TEST_SUITE_P(Backends, TelemetryContract,
                         ::testing::Values(TelemetryContractCase{"fake", fake},
                                           TelemetryContractCase{"module", module},
                                           TelemetryContractCase{"generic", generic}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace offstage
