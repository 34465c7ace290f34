// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Reads the simulated device's counters around every use of a component.

#include "guarded_host_memory.hpp"
#include "pipeline.hpp"
#include "report.hpp"

#include <offstage/testing/simulator.hpp>

#include <functional>
#include <map>
#include <string>

namespace text_to_image {

class Meter final : public Observer {
 public:
  /// @param guard  Its memory is unreadable while a component works. Null: it stays readable.
  Meter(offstage::testing::Simulator& simulator, const offstage::BoundedAllocatorCache& cache,
        GuardedHostMemory* guard)
      : simulator_(simulator), cache_(cache), guard_(guard) {}

  void before(const std::string& component) override;
  void loaded(const std::string& component) override;
  void used(const std::string& component) override;
  void abandoned(const std::string& component) noexcept override;
  void after(const std::string& component) override;

  /// What was counted for one component so far.
  [[nodiscard]] PartReport report(const Pipeline::Part& part) const;

  /// The highest of all peaks of device memory, in bytes.
  [[nodiscard]] std::int64_t highest_peak() const noexcept { return highest_peak_; }

  /// Counts what a load by another scheme costs, and the drop of what it loaded.
  [[nodiscard]] MoveCounts count(const std::function<void()>& move) const;

  /// The same as `report`, without a simulator: from the stager's own counters.
  [[nodiscard]] static PartReport report_of_stager(const Pipeline::Part& part);

 private:
  struct Figures {
    std::int64_t loads = 0;
    MoveCounts moved;
    std::int64_t peak = 0;
    std::string decision;
    std::string reason;
    std::int64_t cached = 0;
  };

  void add(Figures& figures, const offstage::testing::SimulatorCounters& counted) const;

  offstage::testing::Simulator& simulator_;
  const offstage::BoundedAllocatorCache& cache_;
  GuardedHostMemory* const guard_;
  std::map<std::string, Figures> figures_;
  offstage::testing::SimulatorCounters mark_;
  std::int64_t decisions_ = 0;
  std::int64_t highest_peak_ = 0;
};

}  // namespace text_to_image
