// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulator_fixture.hpp"

#include <ATen/ops/zeros.h>

#include <chrono>

namespace offstage::testing {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

/// Round costs: a byte a nanosecond over the bus, a kernel takes 100 us, all else is free.
inline CostModel round_costs() {
  CostModel costs;
  costs.h2d_bandwidth = costs.d2h_bandwidth = 1000;
  costs.pageable_bandwidth = 100;
  costs.copy_latency = nanoseconds(0);
  costs.kernel_latency = microseconds(100);
  costs.memory_bandwidth = costs.flops_per_microsecond = std::int64_t{1} << 50;
  costs.enqueue = nanoseconds(0);
  costs.allocate_cached = costs.allocate_segment = costs.release_segment = nanoseconds(0);
  return costs;
}

class TimelineTest : public SimulatorTest {
 protected:
  void SetUp() override {
    SimulatorTest::SetUp();
    simulator_.set_costs(round_costs());
  }

  at::Tensor device_bytes(std::int64_t count) const {
    return at::empty({count}, at::TensorOptions().dtype(at::kByte).device(simulator_.device()));
  }
  static at::Tensor pinned_bytes(std::int64_t count) {
    return at::zeros({count}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  }

  const c10::Stream copies_ = new_stream();
};

}  // namespace offstage::testing
