// SPDX-License-Identifier: Apache-2.0
#include "../device/fake_device_allocator.hpp"
#include "../device/fake_device_module.hpp"
#include "allocator_figures.hpp"
#include "telemetry_contract.hpp"

#include <offstage/device/generic_telemetry.hpp>
#include <offstage/device/module_telemetry.hpp>
#include <offstage/testing/fake_telemetry.hpp>

#include <gtest/gtest.h>

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

TelemetryUnderTest generic() {
  return under_test(installed_allocator(), std::make_shared<GenericTelemetry>(), kPlugIn);
}

INSTANTIATE_TEST_SUITE_P(Backends, TelemetryContract,
                         ::testing::Values(TelemetryContractCase{"fake", fake},
                                           TelemetryContractCase{"module", module},
                                           TelemetryContractCase{"generic", generic}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace offstage
