// SPDX-License-Identifier: Apache-2.0
#include "script_model.hpp"

#include <offstage/testing/simulator.hpp>

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <c10/core/InferenceMode.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

namespace offstage::models {
namespace {

using testing::Simulator;
using testing::SimulatorCounters;

// Runs until the executor has settled: it records in the first run and optimizes in the second.
constexpr int kRuns = 3;

class ScriptModelsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    at::set_num_threads(1);  // The barriers of OpenMP are invisible to the thread sanitizer.
#endif
    inference_.emplace();
  }
  void TearDown() override {
    inference_.reset();
    EXPECT_NO_THROW(simulator_.reset());
  }

  Simulator& simulator_ = Simulator::install();
  std::optional<c10::InferenceMode> inference_;
};

TEST_P(ScriptModelsTest, ComputesNearlyWhatPythonComputed) {
  ScriptModel model = load_model(GetParam());
  // Not the same bytes: the archive writes numbers out in decimals, and another machine's CPU may
  // choose other kernels.
  EXPECT_TRUE(at::allclose(call(model), model.expected, 1e-4, 1e-5));
}

TEST_P(ScriptModelsTest, ComputesOnTheSimulatorWhatItComputesOnTheCpu) {
  ScriptModel here = load_model(GetParam());
  ScriptModel there = load_model(GetParam());
  move_model(there, simulator_.device());
  for (int run = 0; run < kRuns; ++run) {
    const at::Tensor expected = call(here);
    const at::Tensor result = call(there);
    ASSERT_EQ(result.device(), simulator_.device());
    EXPECT_EQ(result.strides(), expected.strides());
    EXPECT_TRUE(at::equal(result.to(at::kCPU), expected)) << "run " << run;
  }
}

// The first runs may wait: the executor compares the constants of the graph with each other, and
// all weights of a frozen module are such constants.
TEST_P(ScriptModelsTest, WaitsForNothingOnceTheExecutorHasSettled) {
  ScriptModel model = load_model(GetParam());
  move_model(model, simulator_.device());
  for (int run = 1; run < kRuns; ++run) static_cast<void>(call(model));
  const SimulatorCounters before = simulator_.counters();
  const at::Tensor result = call(model);
  const SimulatorCounters work = simulator_.counters() - before;
  EXPECT_EQ(work.kernel_waits, 0);
  EXPECT_EQ(work.host_waits, 0);
  EXPECT_EQ(work.copies_h2d + work.copies_d2h, 0);
  EXPECT_GT(work.kernels, 0);
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(info.param.rfind('/') + 1);
  name.resize(name.size() - std::string(".pt").size());
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Archive, ScriptModelsTest, ::testing::Values(OFFSTAGE_MODEL_FILES),
                         &test_name);

}  // namespace
}  // namespace offstage::models
