// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "telemetry_contract.hpp"

#include <offstage/device/telemetry_figures.hpp>

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace offstage {

/// Makes a fake of an allocator of LibTorch's say these figures.
template <class FakeAllocator>
void set_allocator_figures(FakeAllocator& allocator, const MemoryFigures& figures) {
  constexpr auto kAggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  allocator.stats.reserved_bytes[kAggregate].current = figures.allocator.reserved;
  allocator.stats.allocated_bytes[kAggregate].current = figures.allocator.allocated;
  allocator.stats.inactive_split_bytes[kAggregate].current = figures.allocator.inactive_split;
  allocator.memory = {static_cast<std::size_t>(figures.device.free),
                      static_cast<std::size_t>(figures.device.total)};
}

/// How the contract sees a backend over such a fake. LibTorch's interface has no words for "not
/// known" but wrong figures and an exception.
template <class FakeAllocator>
TelemetryUnderTest under_test(FakeAllocator& allocator, std::shared_ptr<TelemetryBackend> backend,
                              c10::Device device) {
  FakeAllocator* const fake = &allocator;
  fake->releases = 0;
  fake->has_memory_info = true;
  return {.backend = std::move(backend),
          .device = device,
          .set_figures = [=](MemoryFigures figures) { set_allocator_figures(*fake, figures); },
          .break_figures =
              [=] {
                set_allocator_figures(*fake, {.allocator = {.reserved = 0, .allocated = 1}});
                fake->has_memory_info = false;
              },
          .releases = [=] { return fake->releases; }};
}

}  // namespace offstage
