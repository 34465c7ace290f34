// SPDX-License-Identifier: Apache-2.0
#include "../device/fake_cuda_allocator.hpp"
#include "telemetry_contract.hpp"

#include <offstage/device/cuda_telemetry.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>

namespace offstage {
namespace {

void set_allocator_figures(FakeCudaAllocator& allocator, const MemoryFigures& figures) {
  constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  allocator.stats.reserved_bytes[kAggregate].current = figures.allocator.reserved;
  allocator.stats.allocated_bytes[kAggregate].current = figures.allocator.allocated;
  allocator.stats.inactive_split_bytes[kAggregate].current = figures.allocator.inactive_split;
  allocator.memory = {static_cast<size_t>(figures.device.free),
                      static_cast<size_t>(figures.device.total)};
}

TelemetryUnderTest cuda() {
  FakeCudaAllocator* const allocator = &installed_cuda_allocator();
  allocator->releases = 0;
  allocator->has_memory_info = true;
  return {.backend = std::make_shared<CudaTelemetry>(),
          .device = c10::Device(c10::DeviceType::CUDA, 1),
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
                         ::testing::Values(TelemetryContractCase{"cuda", cuda}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace offstage
