// SPDX-License-Identifier: Apache-2.0
#include "meter.hpp"

#include <algorithm>
#include <numeric>

namespace text_to_image {

namespace {

using offstage::testing::SimulatorCounters;

PartReport described(const Pipeline::Part& part) {
  PartReport report;
  report.path = part.path;
  report.residence = to_string(part.placement.residence);
  report.placement_reason = to_string(part.placement.reason);
  report.tensors = static_cast<std::int64_t>(part.tensors.size());
  report.bytes = part.bytes;
  return report;
}

std::int64_t decisions_of(const offstage::BoundedAllocatorCache& cache) {
  const auto counters = cache.counters().by_reason;
  return std::accumulate(counters.begin(), counters.end(), std::int64_t{0});
}

MoveCounts moves_of(const SimulatorCounters& counted) {
  return {counted.allocations, counted.copies_h2d, counted.bytes_h2d, counted.host_waits};
}

MoveCounts sum(const MoveCounts& a, const MoveCounts& b) {
  return {a.allocations + b.allocations, a.copies + b.copies, a.bytes + b.bytes,
          a.host_waits + b.host_waits};
}

}  // namespace

void Meter::add(Figures& figures, const SimulatorCounters& counted) const {
  figures.moved = sum(figures.moved, moves_of(counted));
}

void Meter::before(const std::string& /*component*/) {
  simulator_.reset_peaks();
  decisions_ = decisions_of(cache_);
  mark_ = simulator_.counters();
}

void Meter::loaded(const std::string& component) {
  const SimulatorCounters counted = simulator_.counters() - mark_;
  Figures& figures = figures_[component];
  figures.loads += counted.copies_h2d > 0 ? 1 : 0;
  add(figures, counted);
  if (guard_ != nullptr) {
    simulator_.synchronize();  // the copies have read the masters
    guard_->forbid();
  }
}

void Meter::used(const std::string& /*component*/) {
  if (guard_ != nullptr) {
    try {
      simulator_.synchronize();  // the work has run
    } catch (...) {
      guard_->allow();
      throw;
    }
    guard_->allow();
  }
  mark_ = simulator_.counters();
}

void Meter::abandoned(const std::string& /*component*/) noexcept {
  if (guard_ != nullptr) guard_->allow();
}

void Meter::after(const std::string& component) {
  Figures& figures = figures_[component];
  add(figures, simulator_.counters() - mark_);
  figures.peak = std::max(figures.peak, simulator_.memory().peak_reserved);
  highest_peak_ = std::max(highest_peak_, figures.peak);
  const auto decision = cache_.last_decision();
  if (decision && decisions_of(cache_) != decisions_) {
    figures.decision = decision->released ? "released" : "kept";
    figures.reason = to_string(decision->reason);
    figures.cached = decision->figures ? decision->figures->cached() : 0;
  }
}

PartReport Meter::report(const Pipeline::Part& part) const {
  PartReport report = described(part);
  const auto found = figures_.find(part.path);
  if (found == figures_.end()) return report;
  const Figures& figures = found->second;
  report.loads = figures.loads;
  report.retries = part.stager->counters().out_of_memory_retries;
  report.moved = figures.moved;
  report.peak_bytes = figures.peak;
  report.cache_decision = figures.decision;
  report.cache_reason = figures.reason;
  report.cache_bytes = figures.cached;
  return report;
}

MoveCounts Meter::count(const std::function<void()>& move) const {
  const SimulatorCounters start = simulator_.counters();
  move();
  return moves_of(simulator_.counters() - start);
}

PartReport Meter::report_of_stager(const Pipeline::Part& part) {
  PartReport report = described(part);
  const offstage::StagerCounters counters = part.stager->counters();
  report.loads = counters.loads;
  report.retries = counters.out_of_memory_retries;
  report.moved = {counters.allocations, counters.copies, part.stager->bytes() * counters.loads,
                  counters.host_waits};
  return report;
}

}  // namespace text_to_image
