// SPDX-License-Identifier: Apache-2.0
// Layers and losses beyond those of the usual nets.
#include "simulator_compute_fixture.hpp"

#include <gmock/gmock.h>

namespace offstage::testing {
namespace {

using ::testing::HasSubstr;
using SimulatorLayersTest = SimulatorComputeTest;

constexpr std::int64_t kFeatures = 6;

/// Weights and biases of layers whose cells have `gates` gates.
Tensors recurrent_weights(std::int64_t gates, int layers, bool bidirectional) {
  Tensors weights;
  for (int layer = 0; layer < layers; ++layer) {
    const std::int64_t inputs = layer == 0 || !bidirectional ? kFeatures : 2 * kFeatures;
    for (int direction = 0; direction <= (bidirectional ? 1 : 0); ++direction) {
      weights.push_back(at::randn({gates * kFeatures, inputs}));
      weights.push_back(at::randn({gates * kFeatures, kFeatures}));
      weights.push_back(at::randn({gates * kFeatures}));
      weights.push_back(at::randn({gates * kFeatures}));
    }
  }
  return weights;
}

Tensors behind(const Tensors& tensors, std::ptrdiff_t count) {
  return {tensors.begin() + count, tensors.end()};
}

TEST_F(SimulatorLayersTest, AnLstmIsQueued) {
  for (const bool bidirectional : {false, true}) {
    for (const bool batch_first : {false, true}) {
      Tensors inputs = {batch_first ? at::randn({2, 5, kFeatures}) : at::randn({5, 2, kFeatures}),
                        at::randn({bidirectional ? 4 : 2, 2, kFeatures}),
                        at::randn({bidirectional ? 4 : 2, 2, kFeatures})};
      for (const at::Tensor& weight : recurrent_weights(4, 2, bidirectional)) {
        inputs.push_back(weight);
      }
      expect_queued(inputs, [&](const Tensors& t) {
        return at::lstm(t[0], {t[1], t[2]}, behind(t, 3), /*has_biases=*/true, 2, 0.0,
                        /*train=*/false, bidirectional, batch_first);
      });
    }
  }
}

TEST_F(SimulatorLayersTest, AGruAndAPlainNetAreQueued) {
  Tensors inputs = {at::randn({5, 2, kFeatures}), at::randn({1, 2, kFeatures})};
  for (const at::Tensor& weight : recurrent_weights(3, 1, false)) inputs.push_back(weight);
  expect_queued(inputs, [](const Tensors& t) {
    return at::gru(t[0], t[1], behind(t, 2), true, 1, 0.0, false, false, false);
  });
  inputs.resize(2);
  for (const at::Tensor& weight : recurrent_weights(1, 1, false)) inputs.push_back(weight);
  expect_queued(inputs, [](const Tensors& t) {
    return at::rnn_tanh(t[0], t[1], behind(t, 2), true, 1, 0.0, false, false, false);
  });
}

TEST_F(SimulatorLayersTest, APackedSequenceHasItsBatchSizesOnTheHost) {
  Tensors inputs = {at::randn({7, kFeatures}), at::randn({1, 3, kFeatures}),
                    at::randn({1, 3, kFeatures})};
  for (const at::Tensor& weight : recurrent_weights(4, 1, false)) inputs.push_back(weight);
  const at::Tensor batch_sizes = at::tensor({3, 3, 1}, at::kLong);
  expect_same(inputs, [&](const Tensors& t) {
    return at::lstm(t[0], batch_sizes, {t[1], t[2]}, behind(t, 3), true, 1, 0.0, false, false);
  });
}

// One kernel each, as on the CPU: LibTorch would otherwise take them apart, and they would round
// differently.
TEST_F(SimulatorLayersTest, RecurrentNetsAndCellsOfEveryKindAreWhole) {
  const at::Tensor batch_sizes = at::tensor({3, 3, 1}, at::kLong);
  const at::Tensor packed = at::randn({7, kFeatures});
  const at::Tensor steps = at::randn({5, 3, kFeatures});
  const at::Tensor hidden = at::randn({1, 3, kFeatures});
  const auto with_weights = [&](const at::Tensor& input, std::int64_t gates) {
    Tensors inputs = {input, hidden};
    for (const at::Tensor& weight : recurrent_weights(gates, 1, false)) inputs.push_back(weight);
    return inputs;
  };
  const auto expect_whole = [&](const Tensors& inputs, const auto& compute) {
    expect_same(inputs, compute);
    EXPECT_EQ(work_.kernels, 1);
  };
  expect_whole(with_weights(packed, 3), [&](const Tensors& t) {
    return at::gru(t[0], batch_sizes, t[1], behind(t, 2), true, 1, 0.0, false, false);
  });
  expect_whole(with_weights(packed, 1), [&](const Tensors& t) {
    return at::rnn_tanh(t[0], batch_sizes, t[1], behind(t, 2), true, 1, 0.0, false, false);
  });
  expect_whole(with_weights(packed, 1), [&](const Tensors& t) {
    return at::rnn_relu(t[0], batch_sizes, t[1], behind(t, 2), true, 1, 0.0, false, false);
  });
  expect_whole(with_weights(steps, 1), [&](const Tensors& t) {
    return at::rnn_relu(t[0], t[1], behind(t, 2), true, 1, 0.0, false, false, false);
  });
  const at::Tensor step = steps[0];
  const auto cell = [&](std::int64_t gates) {
    Tensors inputs = with_weights(step, gates);
    inputs[1] = hidden[0];
    return inputs;
  };
  expect_whole(cell(1), [](const Tensors& t) {
    return at::rnn_tanh_cell(t[0], t[1], t[2], t[3], t[4], t[5]);
  });
  expect_whole(cell(1), [](const Tensors& t) {
    return at::rnn_relu_cell(t[0], t[1], t[2], t[3], t[4], t[5]);
  });
}

TEST_F(SimulatorLayersTest, CellsAreQueued) {
  Tensors inputs = {at::randn({2, kFeatures}), at::randn({2, kFeatures}),
                    at::randn({2, kFeatures})};
  for (const at::Tensor& weight : recurrent_weights(4, 1, false)) inputs.push_back(weight);
  expect_queued(inputs, [](const Tensors& t) {
    return at::lstm_cell(t[0], {t[1], t[2]}, t[3], t[4], t[5], t[6]);
  });
  inputs.resize(2);
  for (const at::Tensor& weight : recurrent_weights(3, 1, false)) inputs.push_back(weight);
  expect_queued(inputs,
                [](const Tensors& t) { return at::gru_cell(t[0], t[1], t[2], t[3], t[4], t[5]); });
}

TEST_F(SimulatorLayersTest, LossesAreQueued) {
  const Tensors inputs = {at::rand({4, 6}), at::rand({4, 6})};
  for (const std::int64_t reduction :
       {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
    expect_queued(inputs, [=](const Tensors& t) { return at::mse_loss(t[0], t[1], reduction); });
    expect_queued(inputs,
                  [=](const Tensors& t) { return at::smooth_l1_loss(t[0], t[1], reduction); });
    expect_queued(inputs, [=](const Tensors& t) { return at::huber_loss(t[0], t[1], reduction); });
    expect_queued(inputs, [=](const Tensors& t) {
      return at::binary_cross_entropy(t[0], t[1], {}, reduction);
    });
  }
}

TEST_F(SimulatorLayersTest, PoolingInThreeDimensionsIsQueued) {
  const Tensors inputs = {at::randn({2, 3, 5, 6, 7})};
  expect_queued(inputs, [](const Tensors& t) { return at::max_pool3d_with_indices(t[0], 2); });
  expect_queued(inputs, [](const Tensors& t) {
    return at::max_pool3d(t[0], {3, 2, 2}, {2, 1, 2}, {1, 1, 0}, 1, /*ceil_mode=*/true);
  });
  expect_queued(inputs, [](const Tensors& t) { return at::adaptive_avg_pool3d(t[0], {2, 3, 2}); });
}

TEST_F(SimulatorLayersTest, PreluChannelShuffleAndSamplingAreQueued) {
  const Tensors inputs = {at::randn({2, 4, 5, 6}), at::rand({4}), at::rand({2, 3, 3, 2})};
  expect_queued(inputs, [](const Tensors& t) { return at::prelu(t[0], t[1]); });
  expect_queued(inputs, [](const Tensors& t) { return at::channel_shuffle(t[0], 2); });
  expect_queued(inputs, [](const Tensors& t) { return at::grid_sampler(t[0], t[2], 0, 0, false); });
  expect_queued({at::randn({2, 4, 3, 5, 6}), at::rand({2, 3, 2, 3, 3})},
                [](const Tensors& t) { return at::grid_sampler(t[0], t[1], 0, 1, true); });
}

TEST_F(SimulatorLayersTest, ASparseResultIsRefusedAtTheCall) {
  const at::Tensor dense = at::ones({2, 2}).to(simulator_.device());
  try {
    (void)dense.to_sparse();
    FAIL() << "it has no sparse tensors";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("it has only strided ones"));
  }
  EXPECT_NO_THROW(simulator_.synchronize());
}

/// The gradient of the first input is the CPU's, up to `tolerance`.
class SimulatorGradientsTest : public SimulatorComputeTest {
 protected:
  void SetUp() override {
    SimulatorComputeTest::SetUp();
    inference_.reset();
  }

  template <typename Compute>
  at::Tensor gradient(const Tensors& inputs, c10::Device device, const Compute& compute) {
    Tensors moved;
    for (const at::Tensor& input : inputs) moved.push_back(input.to(device));
    moved[0] = moved[0].detach().clone().requires_grad_();
    at::Tensor result = compute(moved);
    result.sum().backward();
    return moved[0].grad().cpu();
  }

  /// The result too is that of the CPU, bit for bit.
  template <typename Compute>
  void expect_same_gradient_and_result(const Tensors& inputs, const Compute& compute) {
    expect_same_gradient(inputs, compute);
    const auto with_gradients = [&](const Tensors& t) {
      Tensors wanted = t;
      wanted[0] = t[0].detach().requires_grad_();
      return compute(wanted).detach();
    };
    expect_queued(inputs, with_gradients);
  }

  template <typename Compute>
  void expect_same_gradient(const Tensors& inputs, const Compute& compute) {
    EXPECT_TRUE(at::allclose(gradient(inputs, simulator_.device(), compute),
                             gradient(inputs, at::kCPU, compute), 1e-5, 1e-6));
  }
};

TEST_F(SimulatorGradientsTest, OfConvolutions) {
  expect_same_gradient_and_result({at::randn({1, 2, 6, 6}), at::randn({3, 2, 3, 3})},
                                  [](const Tensors& t) { return at::conv2d(t[0], t[1]).pow(2); });
  expect_same_gradient({at::randn({3, 2, 3}), at::randn({1, 2, 6}), at::randn({3})},
                       [](const Tensors& t) { return at::conv1d(t[1], t[0], t[2]).pow(2); });
}

TEST_F(SimulatorGradientsTest, OfAttention) {
  expect_same_gradient_and_result({at::randn({1, 2, 4, 8})}, [](const Tensors& t) {
    return at::scaled_dot_product_attention(t[0], t[0], t[0]).pow(2);
  });
  const at::Tensor mask = at::randn({4, 4}).gt(0).fill_diagonal_(true);
  expect_same_gradient_and_result({at::randn({1, 2, 4, 8}), mask}, [](const Tensors& t) {
    return at::scaled_dot_product_attention(t[0], t[0], t[0], t[1]).pow(2);
  });
}

TEST_F(SimulatorGradientsTest, OfRecurrentLayers) {
  Tensors inputs = {at::randn({5, 2, kFeatures}), at::randn({1, 2, kFeatures}),
                    at::randn({1, 2, kFeatures})};
  for (const at::Tensor& weight : recurrent_weights(4, 1, false)) inputs.push_back(weight);
  expect_same_gradient(inputs, [](const Tensors& t) {
    return std::get<0>(
        at::lstm(t[0], {t[1], t[2]}, behind(t, 3), true, 1, 0.0, true, false, false));
  });
  inputs.resize(2);
  for (const at::Tensor& weight : recurrent_weights(3, 1, false)) inputs.push_back(weight);
  expect_same_gradient(inputs, [](const Tensors& t) {
    return std::get<0>(at::gru(t[0], t[1], behind(t, 2), true, 1, 0.0, true, false, false));
  });
}

TEST_F(SimulatorGradientsTest, OfLosses) {
  expect_same_gradient({at::randn({4, 6}), at::randn({4, 6})},
                       [](const Tensors& t) { return at::mse_loss(t[0], t[1]); });
  expect_same_gradient({at::randn({4, 6}), at::randn({4, 6})},
                       [](const Tensors& t) { return at::smooth_l1_loss(t[0], t[1]); });
}

TEST_F(SimulatorGradientsTest, OfActivationsAreTheCpusBitForBit) {
  const at::Tensor input = at::randn({1000}).mul(4);
  const auto expect_equal = [&](const auto& activation) {
    EXPECT_TRUE(gradient({input}, simulator_.device(), activation)
                    .equal(gradient({input}, at::kCPU, activation)));
  };
  expect_equal([](const Tensors& t) { return at::silu(t[0]); });
  expect_equal([](const Tensors& t) { return at::mish(t[0]); });
}

}  // namespace
}  // namespace offstage::testing
