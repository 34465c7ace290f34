// SPDX-License-Identifier: Apache-2.0
// Host time of what stands between two components, on the simulated accelerator: it says nothing of
// the time of a copy. Beside it the obvious alternative, one tensor at a time.
#include <offstage/offstage.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/ops/full.h>

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

namespace {

using offstage::testing::Simulator;

std::vector<offstage::NamedTensor> tensors_of(std::int64_t count) {
  std::vector<offstage::NamedTensor> tensors;
  for (std::int64_t i = 0; i < count; ++i) {
    tensors.push_back({"t" + std::to_string(i), at::full({64}, 1.0F)});
  }
  return tensors;
}

void load_and_offload(benchmark::State& state) {
  Simulator& simulator = Simulator::install();
  const auto context =
      offstage::DeviceContext::create(simulator.device(), {.host_memory = simulator.host_memory()});
  offstage::PinnedModuleStager stager(tensors_of(state.range(0)), context);
  stager.set_cache(std::make_shared<offstage::BoundedAllocatorCache>(
      simulator.device(), context->telemetry(), std::make_shared<offstage::AlwaysRetention>()));
  for (auto _ : state) {
    stager.load();
    stager.offload();
  }
  simulator.synchronize();
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void move_one_by_one(benchmark::State& state) {
  Simulator& simulator = Simulator::install();
  const auto tensors = tensors_of(state.range(0));
  for (auto _ : state) {
    std::vector<at::Tensor> moved;
    for (const auto& named : tensors) moved.push_back(named.tensor.to(simulator.device()));
    benchmark::DoNotOptimize(moved.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

/// The two raw queries that a decision cannot do without.
void read_both_figures(benchmark::State& state) {
  Simulator& simulator = Simulator::install();
  offstage::GenericTelemetry telemetry;
  for (auto _ : state) {
    benchmark::DoNotOptimize(telemetry.allocator_stats(simulator.device()));
    benchmark::DoNotOptimize(telemetry.device_memory(simulator.device()));
  }
}

void decide_to_retain(benchmark::State& state,
                      const std::shared_ptr<const offstage::RetentionPolicy>& policy) {
  Simulator& simulator = Simulator::install();
  offstage::BoundedAllocatorCache cache(simulator.device(),
                                        std::make_shared<offstage::GenericTelemetry>(), policy);
  for (auto _ : state) benchmark::DoNotOptimize(cache.release_if_needed());
}

BENCHMARK(load_and_offload)->Arg(1000)->UseRealTime();
BENCHMARK(move_one_by_one)->Arg(1000)->UseRealTime();
BENCHMARK(read_both_figures)->UseRealTime();
BENCHMARK_CAPTURE(decide_to_retain, fixed, std::make_shared<offstage::FixedRetention>())
    ->UseRealTime();
BENCHMARK_CAPTURE(decide_to_retain, learned, std::make_shared<offstage::LearnedRetention>())
    ->UseRealTime();

}  // namespace
