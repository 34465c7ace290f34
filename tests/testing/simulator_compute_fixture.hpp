// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulator_fixture.hpp"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <optional>
#include <tuple>
#include <vector>

namespace offstage::testing {

using Tensors = std::vector<at::Tensor>;

inline Tensors as_list(at::Tensor result) {
  return {std::move(result)};
}
inline Tensors as_list(Tensors results) {
  return results;
}
template <typename... Results>
Tensors as_list(const std::tuple<Results...>& results) {
  return std::apply([](const auto&... each) { return Tensors{each...}; }, results);
}

/// Computes the same on the CPU and on the device, and wants the same bytes.
class SimulatorComputeTest : public SimulatorTest {
 protected:
  void SetUp() override {
    SimulatorTest::SetUp();
    at::manual_seed(7);
    inference_.emplace();
  }
  void TearDown() override {
    inference_.reset();
    SimulatorTest::TearDown();
  }

  /// `compute` takes the inputs and returns a tensor, several in a tuple, or a list.
  template <typename Compute>
  void expect_same(const Tensors& inputs, const Compute& compute) {
    const Tensors expected = as_list(compute(inputs));
    Tensors moved;
    for (const at::Tensor& input : inputs) moved.push_back(input.to(simulator_.device()));
    const SimulatorCounters before = simulator_.counters();
    const Tensors results = as_list(compute(moved));
    work_ = simulator_.counters() - before;
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t i = 0; i < results.size(); ++i) expect_same(results[i], expected[i]);
  }

  /// The same, and nothing was waited for: neither by the program nor by the simulator.
  template <typename Compute>
  void expect_queued(const Tensors& inputs, const Compute& compute) {
    expect_same(inputs, compute);
    EXPECT_EQ(work_.kernel_waits, 0);
    EXPECT_EQ(work_.host_waits, 0);
    EXPECT_GT(work_.kernels + work_.copies_d2d, 0);
  }

  void expect_same(const at::Tensor& result, const at::Tensor& expected) const {
    ASSERT_EQ(result.device(), simulator_.device());
    EXPECT_EQ(result.scalar_type(), expected.scalar_type());
    EXPECT_EQ(result.sizes(), expected.sizes());
    EXPECT_EQ(result.strides(), expected.strides());
    EXPECT_TRUE(at::equal(result.to(at::kCPU), expected));
  }

  SimulatorCounters work_;  ///< Of the last computation on the device.
  std::optional<c10::InferenceMode> inference_;
};

}  // namespace offstage::testing
