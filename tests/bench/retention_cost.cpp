// SPDX-License-Identifier: Apache-2.0
// What a decision that keeps the cache costs in instructions, on the simulated device: the two raw
// queries alone, and with the fixed and the learned policy. Under callgrind, one dump each;
// retention_table.py runs it.
#include <offstage/offstage.hpp>
#include <offstage/testing/simulator.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <valgrind/callgrind.h>

namespace {

constexpr int kDecisions = 1000;

template <class Step>
void measure(const char* name, Step step) {
  for (int i = 0; i < kDecisions; ++i) step();
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
  for (int i = 0; i < kDecisions; ++i) step();
  const std::string label = std::string(name) + ",1," + std::to_string(kDecisions);
  CALLGRIND_DUMP_STATS_AT(label.c_str());
  CALLGRIND_STOP_INSTRUMENTATION;
}

}  // namespace

int main() {
  auto& simulator = offstage::testing::Simulator::install();
  const c10::Device device = simulator.device();
  const auto telemetry = std::make_shared<offstage::GenericTelemetry>();
  measure("two queries", [&] {
    (void)telemetry->allocator_stats(device);
    (void)telemetry->device_memory(device);
  });
  offstage::BoundedAllocatorCache fixed(device, telemetry);
  measure("fixed", [&] { fixed.release_if_needed(); });
  offstage::BoundedAllocatorCache learned(device, telemetry,
                                          std::make_shared<offstage::LearnedRetention>());
  measure("learned", [&] { learned.release_if_needed(); });
  const auto releases = fixed.counters().releases + learned.counters().releases;
  if (releases != 0) std::fprintf(stderr, "a decision has released\n");
  return releases == 0 ? 0 : 1;
}
