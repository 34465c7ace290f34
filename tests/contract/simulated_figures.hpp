// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "telemetry_contract.hpp"

#include <offstage/base/bytes.hpp>
#include <offstage/testing/simulator.hpp>

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace offstage {

/// Brings a simulated device into the state that figures describe: blocks that are held, split and
/// cached, and the memory of other processes. Sizes must be 0 or whole multiples of 10 MiB: each
/// then has a segment of its own.
class SimulatedFigures {
 public:
  SimulatedFigures(testing::Simulator& simulator, int index)
      : simulator_(simulator), device_(simulator.device(index)) {
    simulator_.reset();
  }

  void set(const MemoryFigures& figures) {
    const auto& [reserved, allocated, split] = figures.allocator;
    const auto& [free, total] = figures.device;
    held_ = {};
    simulator_.reset();
    (void)allocate(allocated + split);  // A segment that is then cut into what is held and a rest.
    held_ = allocate(allocated);
    (void)allocate(reserved - allocated - split);
    simulator_.set_capacity(device_.index(), total);
    simulator_.set_used_by_others(device_.index(), total - free - reserved);
  }

  [[nodiscard]] testing::Simulator& simulator() const { return simulator_; }
  [[nodiscard]] c10::Device device() const { return device_; }
  [[nodiscard]] int releases() const {
    return static_cast<int>((simulator_.counters(device_.index()) - before_).cache_releases);
  }

 private:
  [[nodiscard]] c10::DataPtr allocate(std::int64_t bytes) const {
    const c10::DeviceGuard guard(device_);
    return c10::GetAllocator(device_.type())->allocate(static_cast<std::size_t>(bytes));
  }

  testing::Simulator& simulator_;
  const c10::Device device_;
  const testing::SimulatorCounters before_ = simulator_.counters(device_.index());
  c10::DataPtr held_;
};

/// A backend that is asked for the figures of a simulated device.
inline TelemetryUnderTest over(const std::shared_ptr<SimulatedFigures>& figures,
                               std::shared_ptr<TelemetryBackend> backend,
                               std::function<void()> break_figures) {
  return {.backend = std::move(backend),
          .device = figures->device(),
          .set_figures = [=](const MemoryFigures& wanted) { figures->set(wanted); },
          .break_figures = std::move(break_figures),
          .releases = [=] { return figures->releases(); },
          .unit = kMiB};
}

}  // namespace offstage
