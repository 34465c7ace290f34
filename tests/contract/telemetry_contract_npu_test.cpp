// SPDX-License-Identifier: Apache-2.0
// The contract on a simulated npu, in a program of its own since a process has one device name. Its
// allocator has no generic statistics; the registered device module has.
#include "simulated_figures.hpp"

#include <offstage/base/error.hpp>
#include <offstage/device/device_module.hpp>
#include <offstage/device/generic_telemetry.hpp>
#include <offstage/device/telemetry_registry.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <gtest/gtest.h>

#include <cstdint>
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

testing::Simulator& simulated_npu() {
  return testing::Simulator::install(
      {.name = "npu", .capacity_bytes = 2 * kGiB, .is_device_allocator = false, .poison = false});
}

TelemetryUnderTest module() {
  auto& simulator = simulated_npu();
  const auto module = std::make_shared<SimulatedModule>(simulator);
  TelemetryRegistry registry;
  registry.register_module("npu", module);
  return over(std::make_shared<SimulatedFigures>(simulator, 1),
              registry.resolve(simulator.device().type()), [=] { module->broken = true; });
}

INSTANTIATE_TEST_SUITE_P(Npu, TelemetryContract,
                         ::testing::Values(TelemetryContractCase{"module", module}),
                         [](const auto& instance) { return instance.param.name; });

// The point of the module: decisions on real blocks, at the exact bounds, where the generic query
// can only fail.
TEST(SimulatedNpuTest, WithTheModuleACacheIsKeptWhereTheGenericQueryWouldFlushIt) {
  auto& simulator = simulated_npu();
  const c10::DeviceType type = simulator.device().type();
  ASSERT_EQ(dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(type)), nullptr);
  SimulatedFigures figures(simulator, 1);
  const auto decide = [&](const std::shared_ptr<TelemetryBackend>& backend,
                          std::int64_t cached) -> RetentionDecision {
    figures.set({.allocator = {.reserved = cached * kMiB},
                 .device = {.free = 600 * kMiB, .total = 1000 * kMiB}});
    BoundedAllocatorCache cache(figures.device(), backend);
    try {
      cache.release_if_needed();
    } catch (const TelemetryError&) {  // The generic release fails as well.
    }
    return *cache.last_decision();
  };
  TelemetryRegistry registry;
  registry.register_module("npu", std::make_shared<SimulatedModule>(simulator));
  const auto backend = registry.resolve(type);
  EXPECT_EQ(decide(backend, 250).reason, RetentionReason::kWithinBounds);
  EXPECT_EQ(simulator.memory(1).reserved, 250 * kMiB);
  EXPECT_EQ(decide(backend, 260).reason, RetentionReason::kCachedOverBound);
  EXPECT_EQ(simulator.memory(1).reserved, 0);
  const auto generic = decide(std::make_shared<GenericTelemetry>(), 250);
  EXPECT_EQ(generic.reason, RetentionReason::kTelemetryFailed);
  simulator.reset();
}

}  // namespace
}  // namespace offstage
