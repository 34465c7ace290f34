// SPDX-License-Identifier: Apache-2.0
// What the race checker of the simulated accelerator costs: the same with and without.
#include <offstage/testing/simulator.hpp>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <c10/core/InferenceMode.h>

#include <benchmark/benchmark.h>

#include <vector>

namespace {

using offstage::testing::RaceAction;
using offstage::testing::Simulator;

/// Twelve transformer blocks; the argument is their width.
void forward(benchmark::State& state, RaceAction action) {
  const c10::InferenceMode inference;
  at::set_num_threads(1);  // The ratio is wanted, not how threads share the cores.
  Simulator& simulator = Simulator::install();
  simulator.set_race_action(action);
  const auto width = state.range(0);
  const auto options = at::TensorOptions().device(simulator.device());
  std::vector<at::Tensor> weights;
  for (int block = 0; block < 12; ++block) weights.push_back(at::rand({width, width}, options));
  const at::Tensor input = at::rand({1, 4, 16, width / 4}, options);
  for (auto _ : state) {
    at::Tensor x = input;
    for (const at::Tensor& weight : weights) {
      x = at::scaled_dot_product_attention(x, x, x);
      x = x.transpose(1, 2).reshape({1, 16, width});
      x = at::silu(at::linear(at::layer_norm(x, {width}), weight));
      x = x.view({1, 16, 4, width / 4}).transpose(1, 2);
    }
    benchmark::DoNotOptimize(x.sum().item<float>());
  }
}

/// Every column of a square matrix is read; the argument is its width.
void read_columns(benchmark::State& state, RaceAction action) {
  const c10::InferenceMode inference;
  at::set_num_threads(1);
  Simulator& simulator = Simulator::install();
  simulator.set_race_action(action);
  const auto width = state.range(0);
  const at::Tensor matrix =
      at::rand({width, width}, at::TensorOptions().device(simulator.device()));
  for (auto _ : state) {
    for (std::int64_t column = 0; column < width; ++column) {
      benchmark::DoNotOptimize(matrix.select(1, column).add(1));
    }
    simulator.synchronize();
  }
}

BENCHMARK_CAPTURE(read_columns, unchecked, RaceAction::kIgnore)->Arg(512)->Arg(2048)->UseRealTime();
BENCHMARK_CAPTURE(read_columns, checked, RaceAction::kThrow)->Arg(512)->Arg(2048)->UseRealTime();
BENCHMARK_CAPTURE(forward, unchecked, RaceAction::kIgnore)->Arg(32)->Arg(512)->UseRealTime();
BENCHMARK_CAPTURE(forward, checked, RaceAction::kThrow)->Arg(32)->Arg(512)->UseRealTime();

}  // namespace
