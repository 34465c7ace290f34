// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The counters of one simulated device, shared by all threads.

#include <offstage/base/config.hpp>
#include <offstage/testing/simulator.hpp>

#include <cstdint>
#include <mutex>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

class CounterBoard {
 public:
  void add(std::int64_t SimulatorCounters::*field, std::int64_t amount = 1) {
    const std::lock_guard lock(mutex_);
    counters_.*field += amount;
  }

  [[nodiscard]] SimulatorCounters read() const {
    const std::lock_guard lock(mutex_);
    return counters_;
  }

 private:
  mutable std::mutex mutex_;
  SimulatorCounters counters_;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
