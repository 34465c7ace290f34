// SPDX-License-Identifier: Apache-2.0
// The contract on a simulated npu, in a program of its own since a process has one device name. Its
// allocator has no generic statistics; the registered device module has.
#include "simulated_figures.hpp"

#include <offstage/base/error.hpp>
#include <offstage/device/device_module.hpp>
#include <offstage/device/telemetry_registry.hpp>

#include <gtest/gtest.h>

#include <memory>

namespace offstage {
namespace {

class SimulatedModule final : public DeviceModule {
 public:
  explicit SimulatedModule(testing::Simulator& simulator) : simulator_(simulator) {}

  AllocatorStats memory_stats(c10::DeviceIndex index) override {
    const auto memory = read(index);
    return {.reserved = memory.reserved,
            .allocated = memory.allocated,
            .inactive_split = memory.inactive_split};
  }
  DeviceMemory memory_info(c10::DeviceIndex index) override {
    const auto memory = read(index);
    return {.free = memory.free, .total = memory.total};
  }
  void empty_cache(c10::DeviceIndex /*index*/) override { simulator_.empty_cache(); }

  bool broken = false;

 private:
  testing::SimulatorMemory read(c10::DeviceIndex index) const {
    if (broken) throw TelemetryError("the module does not answer");
    return simulator_.memory(index);
  }

  testing::Simulator& simulator_;
};

TelemetryUnderTest module() {
  auto& simulator = testing::Simulator::install(
      {.name = "npu", .capacity_bytes = 2 * kGiB, .is_device_allocator = false, .poison = false});
  const auto module = std::make_shared<SimulatedModule>(simulator);
  TelemetryRegistry registry;
  registry.register_module("npu", module);
  return over(std::make_shared<SimulatedFigures>(simulator, 1),
              registry.resolve(simulator.device().type()), [=] { module->broken = true; });
}

INSTANTIATE_TEST_SUITE_P(Npu, TelemetryContract,
                         ::testing::Values(TelemetryContractCase{"module", module}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace offstage
