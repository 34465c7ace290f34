// SPDX-License-Identifier: Apache-2.0
// The contract with real blocks behind the figures: LibTorch's generic query of the simulated
// accelerator's allocator.
#include "simulated_figures.hpp"

#include <offstage/device/generic_telemetry.hpp>

#include <gtest/gtest.h>

#include <memory>

namespace offstage {
namespace {

std::shared_ptr<SimulatedFigures> second_device() {
  auto& simulator = testing::Simulator::install({.capacity_bytes = 2 * kGiB, .poison = false});
  return std::make_shared<SimulatedFigures>(simulator, 1);
}

// LibTorch's allocator interface has no words for "not known" but an exception and wrong figures.
TelemetryUnderTest whose_figures_fail() {
  const auto figures = second_device();
  return over(figures, std::make_shared<GenericTelemetry>(), [=] {
    figures->simulator().faults().fail(testing::FaultPoint::kStatistics,
                                       testing::FaultWhen::from(1), testing::Fault::kLibTorch);
  });
}

TelemetryUnderTest whose_figures_are_wrong() {
  const auto figures = second_device();
  return over(figures, std::make_shared<GenericTelemetry>(), [=] {
    figures->set({.allocator = {.reserved = 10 * kMiB, .allocated = 10 * kMiB},
                  .device = {.free = 10 * kMiB, .total = 20 * kMiB}});
    figures->simulator().set_statistics(testing::SimulatedStatistics::kWrong);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Simulator, TelemetryContract,
    ::testing::Values(TelemetryContractCase{"whose_figures_fail", whose_figures_fail},
                      TelemetryContractCase{"whose_figures_are_wrong", whose_figures_are_wrong}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace offstage
