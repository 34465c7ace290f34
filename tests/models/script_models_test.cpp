// SPDX-License-Identifier: Apache-2.0
#include "script_model.hpp"

#include <offstage/device/device_context.hpp>
#include <offstage/device/generic_telemetry.hpp>
#include <offstage/staging/pinned_module_stager.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <c10/core/InferenceMode.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace offstage::models {
namespace {

using testing::Simulator;
using testing::SimulatorCounters;

// The executor records in the first run and optimizes in the second, and has settled then.
constexpr int kRunsToSettle = 2;
constexpr int kCycles = 100;

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

  std::vector<at::Tensor> moved(const std::vector<at::Tensor>& inputs) const {
    std::vector<at::Tensor> there;
    for (const at::Tensor& input : inputs) there.push_back(input.to(simulator_.device()));
    return there;
  }

  std::unique_ptr<PinnedModuleStager> stage(std::vector<NamedTensor> tensors) const {
    return std::make_unique<PinnedModuleStager>(
        std::move(tensors),
        DeviceContext::create(simulator_.device(),
                              {.host_memory = simulator_.host_memory(),
                               .telemetry = std::make_shared<GenericTelemetry>()}));
  }

  Simulator& simulator_ = Simulator::install();
  std::optional<c10::InferenceMode> inference_;
};

TEST_P(ScriptModelsTest, ComputesNearlyWhatPythonComputed) {
  ScriptModel model = load_model(GetParam());
  // Not the same bytes: the archive writes numbers out in decimals, and another machine's CPU may
  // choose other kernels.
  EXPECT_TRUE(at::allclose(call(model, model.inputs), model.expected, 1e-4, 1e-5));
}

// Also in the first cycles, when the executor looks at the constants and makes its plans: it must
// keep none of them.
TEST_P(ScriptModelsTest, ComputesInEachCycleWhatItComputesOnTheCpu) {
  ScriptModel here = load_model(GetParam());
  ScriptModel there = load_model(GetParam());
  const std::vector<NamedTensor> tensors = tensors_of(there, simulator_.device());
  const auto stager = stage(tensors);
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    SCOPED_TRACE("cycle " + std::to_string(cycle));
    const at::Tensor expected = call(here, here.inputs);
    stager->load();
    at::Tensor result = call(there, moved(there.inputs));
    ASSERT_EQ(result.device(), simulator_.device());
    ASSERT_EQ(result.strides(), expected.strides());
    result = result.to(at::kCPU);
    stager->offload();
    ASSERT_TRUE(at::equal(result, expected));
    ASSERT_EQ(stager->still_referenced_bytes(), 0);
    ASSERT_EQ(simulator_.memory().allocated, 0);
    for (const NamedTensor& named : tensors) ASSERT_TRUE(named.tensor.is_cpu()) << named.path;
  }
}

// The first runs may wait: the executor compares the constants of the graph with each other, and
// all weights of a frozen module are such constants.
TEST_P(ScriptModelsTest, WaitsForNothingOnceTheExecutorHasSettled) {
  ScriptModel model = load_model(GetParam());
  const auto stager = stage(tensors_of(model, simulator_.device()));
  stager->load();
  const std::vector<at::Tensor> inputs = moved(model.inputs);
  for (int run = 0; run < kRunsToSettle; ++run) static_cast<void>(call(model, inputs));
  const SimulatorCounters before = simulator_.counters();
  const at::Tensor result = call(model, inputs);
  const SimulatorCounters work = simulator_.counters() - before;
  EXPECT_EQ(work.kernel_waits, 0);
  EXPECT_EQ(work.host_waits, 0);
  EXPECT_EQ(work.copies_h2d + work.copies_d2h, 0);
  EXPECT_GT(work.kernels, 0);
  stager->offload();
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
