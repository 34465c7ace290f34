// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What things cost in the virtual time of the simulated accelerator.

#include <offstage/base/config.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing {

/// What a kernel does, as far as a cost can be told from operands and shapes.
struct KernelWork {
  std::string name;        ///< "aten::addmm".
  std::int64_t bytes = 0;  ///< Of all operands, `out` ones too; not of results that are new.
  std::int64_t flops = 0;  ///< Multiply and add count as two; 0 where no formula is known.
};

/// Costs in virtual time. The defaults are round figures of the order of a data-centre GPU on PCIe
/// 4.0 x16; they are no measurement of one. A bandwidth is in bytes a microsecond (25,000 are
/// 25 GB/s). All arithmetic is in whole nanoseconds, so that every machine gets the same figures.
struct CostModel {
  using Nanoseconds = std::chrono::nanoseconds;

  std::int64_t h2d_bandwidth = 25'000;      ///< Pinned host memory to the device.
  std::int64_t d2h_bandwidth = 25'000;      ///< The way back.
  std::int64_t pageable_bandwidth = 6'000;  ///< Either way, from or to pageable memory.
  std::int64_t peer_bandwidth = 20'000;     ///< From one device to another.
  Nanoseconds copy_latency{10'000};         ///< Of each copy over a bus, on top.

  std::int64_t memory_bandwidth = 1'500'000;  ///< Of kernels, and of copies inside one device.
  std::int64_t flops_per_microsecond = 100'000'000;  ///< 100 TFLOP/s.
  Nanoseconds kernel_latency{3'000};                 ///< Of each kernel, on top.

  Nanoseconds enqueue{4'000};             ///< Host time of each call that queues something.
  Nanoseconds query{500};                 ///< Host time of asking a stream or an event; not 0.
  Nanoseconds allocate_cached{1'000};     ///< Host time of a block from the allocator's cache.
  Nanoseconds allocate_segment{200'000};  ///< Host time of memory from the device, on top.
  Nanoseconds release_segment{200'000};   ///< Host time of giving a segment back.

  /// Costs of single operations, by name ("aten::addmm"), instead of the formula. A function must
  /// depend on its argument alone. One that is negative, or that the clock cannot count, is an
  /// `InvalidArgument` from the call of the operation, which is not queued.
  std::map<std::string, std::function<Nanoseconds(const KernelWork&)>> kernels;

  /// `kernels[name]`, else `kernel_latency` + the longer of bytes and flops.
  /// @throws InvalidArgument for a negative cost and one of centuries.
  [[nodiscard]] Nanoseconds cost_of(const KernelWork& work) const;

  /// `copy_latency` + the time for the bytes.
  [[nodiscard]] Nanoseconds copy_cost(std::int64_t bytes, std::int64_t bandwidth) const;
};

}  // namespace testing
OFFSTAGE_NAMESPACE_END
