// SPDX-License-Identifier: Apache-2.0
#include "simulator_compute_fixture.hpp"

#include <torch/nn.h>

namespace offstage::testing {
namespace {

using SimulatorKernelsTest = SimulatorComputeTest;

TEST_F(SimulatorKernelsTest, LinearInTwoAndThreeDimensions) {
  for (const auto& x : {at::randn({3, 5}), at::randn({2, 3, 5})}) {
    expect_queued({x, at::randn({7, 5}), at::randn({7})},
                  [](const Tensors& t) { return at::linear(t[0], t[1], t[2]); });
  }
}

TEST_F(SimulatorKernelsTest, LinearInHalfPrecision) {
  expect_queued({at::randn({3, 8}).to(at::kBFloat16), at::randn({4, 8}).to(at::kBFloat16)},
                [](const Tensors& t) { return at::linear(t[0], t[1]); });
}

TEST_F(SimulatorKernelsTest, Convolutions) {
  const at::Tensor x = at::randn({2, 4, 9, 9});
  const Tensors inputs = {x, at::randn({6, 4, 3, 3}), at::randn({6})};
  expect_queued(inputs, [](const Tensors& t) { return at::conv2d(t[0], t[1], t[2], 1, 1); });
  expect_queued(inputs, [](const Tensors& t) { return at::conv2d(t[0], t[1], at::Tensor(), 2); });
  expect_queued({x.contiguous(at::MemoryFormat::ChannelsLast), inputs[1], inputs[2]},
                [](const Tensors& t) { return at::conv2d(t[0], t[1], t[2], 1, 1); });
  expect_queued({at::randn({2, 4, 9}), at::randn({6, 2, 3})},
                [](const Tensors& t) { return at::conv1d(t[0], t[1], at::Tensor(), 1, 1, 1, 2); });
  expect_queued({x, at::randn({4, 5, 2, 2})},
                [](const Tensors& t) { return at::conv_transpose2d(t[0], t[1], at::Tensor(), 2); });
}

TEST_F(SimulatorKernelsTest, EmbeddingAndIndexing) {
  const at::Tensor ids = at::tensor({3, 0, 2, 2}, at::kLong);
  const at::Tensor table = at::randn({4, 6});
  expect_same({table, ids}, [](const Tensors& t) { return at::embedding(t[0], t[1]); });
  expect_same({table, ids}, [](const Tensors& t) { return t[0].index_select(0, t[1]); });
  expect_same({table, ids}, [](const Tensors& t) { return t[0].index({t[1]}); });
  expect_same({table, at::tensor({1, 5, 0, 0}, at::kLong).view({2, 2})},
              [](const Tensors& t) { return t[0].gather(1, t[1]); });
  expect_same({table}, [](const Tensors& t) { return t[0].index({t[0].gt(0)}); });
  const at::Tensor moved = table.to(simulator_.device()).index({ids});
  expect_same(moved, table.index({ids}));
}

TEST_F(SimulatorKernelsTest, Norms) {
  expect_queued({at::randn({2, 5, 8}), at::randn({8}), at::randn({8})},
                [](const Tensors& t) { return at::layer_norm(t[0], {8}, t[1], t[2]); });
  expect_queued({at::randn({2, 5, 8})}, [](const Tensors& t) { return at::layer_norm(t[0], {8}); });
  expect_queued({at::randn({2, 8, 4, 4}), at::randn({8}), at::randn({8})},
                [](const Tensors& t) { return at::group_norm(t[0], 4, t[1], t[2]); });
  expect_queued({at::randn({2, 5, 8}), at::randn({8})},
                [](const Tensors& t) { return at::rms_norm(t[0], {8}, t[1]); });
}

TEST_F(SimulatorKernelsTest, Attention) {
  const Tensors qkv = {at::randn({2, 3, 6, 8}), at::randn({2, 3, 6, 8}), at::randn({2, 3, 6, 8})};
  expect_queued(
      qkv, [](const Tensors& t) { return at::scaled_dot_product_attention(t[0], t[1], t[2]); });
  expect_queued(qkv, [](const Tensors& t) {
    return at::scaled_dot_product_attention(t[0], t[1], t[2], {}, 0.0, /*is_causal=*/true);
  });
  expect_queued({at::randn({2, 6, 9, 8})}, [](const Tensors& t) {
    const Tensors parts = t[0].transpose(1, 2).chunk(3, 1);  // Heads beside features, as in models.
    return at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
  });
  expect_queued({qkv[0], at::randn({2, 3, 5, 8}), at::randn({2, 3, 5, 4})}, [](const Tensors& t) {
    return at::scaled_dot_product_attention(t[0], t[1], t[2]);  // Not by the fused kernel.
  });
  expect_queued({qkv[0], qkv[1], qkv[2], at::randn({6, 6}).gt(0)}, [](const Tensors& t) {
    return at::scaled_dot_product_attention(t[0], t[1], t[2], t[3]);
  });
  expect_queued(qkv, [](const Tensors& t) {
    return at::softmax(t[0].matmul(t[1].transpose(2, 3)) / 8.0, -1).matmul(t[2]);
  });
}

TEST_F(SimulatorKernelsTest, PointwiseComparisonsAndChoices) {
  expect_queued({at::randn({4, 6}), at::randn({6})}, [](const Tensors& t) {
    const at::Tensor sum = (t[0] + t[1]) * 2.5 - t[0] / t[1].abs().add_(1);
    const at::Tensor active = at::silu(sum) + at::gelu(sum) + at::gelu(sum, "tanh");
    return at::where(active > t[1], active.exp(), at::sigmoid(active)).clamp(-1, 1);
  });
  expect_queued({at::randn({4, 6})}, [](const Tensors& t) { return t[0].le(0.25).logical_not(); });
  expect_queued({at::randn({4, 6})}, [](const Tensors& t) { return t[0].mean(-1).var(0, true); });
  expect_queued({at::randn({4, 6})}, [](const Tensors& t) { return t[0].argmax(-1); });
}

TEST_F(SimulatorKernelsTest, ShapesPiecesAndCopies) {
  expect_same({at::randn({4, 6})}, [](const Tensors& t) {
    const Tensors halves = t[0].chunk(2, 1);
    const Tensors rows = t[0].split(3, 0);
    return at::cat({halves[1], halves[0].contiguous(),
                    rows[0].t().contiguous().t().slice(1, 0, 1).repeat({4, 1}).narrow(0, 0, 4)},
                   1);
  });
  expect_same({at::randn({2, 3, 4})}, [](const Tensors& t) {
    return t[0].permute({2, 0, 1}).contiguous().flatten(1);
  });
  expect_same({at::randn({2, 3, 4})}, [](const Tensors& t) { return t[0].to(at::kHalf); });
  expect_same({at::randn({2, 6})}, [](const Tensors& t) {
    return at::view_as_real(at::view_as_complex(t[0].view({2, 3, 2})).conj() *
                            at::view_as_complex(t[0].view({2, 3, 2})));
  });
  expect_same({at::randn({1, 2, 3, 3})}, [](const Tensors& t) {
    return at::upsample_nearest2d(t[0], {6, 6});
  });
  expect_same({at::randn({1, 2, 9})},
              [](const Tensors& t) { return t[0].unfold(2, 3, 2).clone(); });
}

TEST_F(SimulatorKernelsTest, FactoriesAndOutArguments) {
  const auto on_device = at::TensorOptions().device(simulator_.device());
  expect_same(at::arange(3, 11, 2, on_device), at::arange(3, 11, 2));
  expect_same(at::full({2, 2}, 1.5, on_device), at::full({2, 2}, 1.5));
  expect_same(at::zeros({3}, on_device.dtype(at::kBool)), at::zeros({3}, at::kBool));
  expect_same(at::eye(3, on_device), at::eye(3));
  expect_same(at::tril_indices(3, 3, 0, on_device.dtype(at::kLong)), at::tril_indices(3, 3));
  at::Tensor out = at::empty({0}, on_device);
  at::add_out(out, at::ones({2, 3}, on_device), at::ones({3}, on_device));
  expect_same(out, at::full({2, 3}, 2.0));
  at::Tensor indices = at::empty({0}, on_device.dtype(at::kLong));
  at::nonzero_out(indices, at::ones({2}, on_device));
  expect_same(indices, at::tensor({0, 1}, at::kLong).view({2, 1}));
}

// LibTorch warns, and makes it fit.
TEST_F(SimulatorKernelsTest, AnOutArgumentOfAnotherSizeIsMadeToFit) {
  const auto on_device = at::TensorOptions().device(simulator_.device());
  const at::Tensor operand = at::arange(4, on_device).view({2, 2});
  for (const std::int64_t size : {2, 6}) {
    at::Tensor out = at::full({size}, -1, operand.options());
    at::add_out(out, operand, operand);  // Queued.
    expect_same(out, at::arange(0, 8, 2).view({2, 2}));
    at::Tensor indices = at::full({size}, -1, operand.options());
    at::nonzero_out(indices, at::ones({4}, on_device));  // Waits: its size depends on values.
    expect_same(indices, at::arange(4).view({4, 1}));
  }
}

TEST_F(SimulatorKernelsTest, AnOutArgumentKeepsItsStridesAndMayBeAnOperand) {
  const auto on_device = at::TensorOptions().device(simulator_.device());
  at::Tensor columns = at::arange(6, on_device).view({2, 3}).t();
  at::add_out(columns, columns, columns);
  expect_same(columns, at::arange(0, 12, 2).view({2, 3}).t());
  at::Tensor wide = at::zeros({4, 2}, on_device.dtype(at::kLong));
  at::Tensor out = wide.slice(1, 0, 1);
  at::nonzero_out(out, at::ones({4}, on_device));
  EXPECT_EQ(out.strides(), at::IntArrayRef({2, 1}));
  expect_same(wide, at::tensor({0, 0, 1, 0, 2, 0, 3, 0}, at::kLong).view({4, 2}));
}

TEST_F(SimulatorKernelsTest, RandomNumbersAreThoseOfTheCpuGenerator) {
  const auto on_device = at::TensorOptions().device(simulator_.device());
  at::manual_seed(3);
  const Tensors expected = {at::randn({4}), at::rand({4}), at::randn({4})};
  at::manual_seed(3);
  const SimulatorCounters before = simulator_.counters();
  expect_same(at::randn({4}, on_device), expected[0]);
  EXPECT_TRUE(at::equal(at::rand({4}), expected[1]));
  expect_same(at::randn({4}, on_device), expected[2]);
  EXPECT_EQ((simulator_.counters() - before).kernel_waits, 2) << "drawn before the call returns";
}

TEST_F(SimulatorKernelsTest, ItemReadsTheDevice) {
  const at::Tensor x = at::full({}, 2.5, at::TensorOptions().device(simulator_.device()));
  EXPECT_EQ(x.item<float>(), 2.5F);
  EXPECT_TRUE(at::equal(x, x.clone()));
}

TEST_F(SimulatorKernelsTest, OperandsOnDifferentDevicesAreRefused) {
  const at::Tensor host = at::ones({2, 2});
  const at::Tensor device = host.to(simulator_.device());
  EXPECT_THROW(device + host, c10::Error);
  EXPECT_THROW(at::linear(device, host), c10::Error);
  EXPECT_THROW(device + host.to(simulator_.device(1)), c10::Error);
  EXPECT_NO_THROW(device + at::ones({}));
  at::Tensor scalar = at::ones({});
  EXPECT_THROW(scalar.add_(device[0][0]), c10::Error);
}

TEST_F(SimulatorKernelsTest, WrongArgumentsThrowAtTheCall) {
  const at::Tensor x = at::ones({2, 3}, at::TensorOptions().device(simulator_.device()));
  EXPECT_THROW(x.matmul(x), c10::Error);
  EXPECT_THROW(at::conv1d(x.view({1, 2, 3}), at::ones({1, 1, 2}, x.options())), c10::Error);
  EXPECT_THROW(at::layer_norm(x, {4}), c10::Error);
}

TEST_F(SimulatorKernelsTest, WrongIndicesThrowAtTheNextSynchronisation) {
  const at::Tensor x = at::ones({2, 3}, at::TensorOptions().device(simulator_.device()));
  const at::Tensor index = at::tensor({5}, at::kLong).to(x.device());
  EXPECT_NO_THROW(x.index_select(0, index)) << "the elements are on the device";
  EXPECT_THROW(simulator_.synchronize(), c10::Error);
}

TEST_F(SimulatorKernelsTest, AResultReadOnAnotherStreamWithoutAWaitIsARace) {
  const at::Tensor table = at::ones({4, 4}, at::TensorOptions().device(simulator_.device()));
  const at::Tensor rows = at::tensor({1, 0}, at::kLong).to(table.device());
  const at::Tensor picked = table.index_select(0, rows);
  const c10::StreamGuard guard(new_stream());
  EXPECT_THROW(picked + picked, RaceError);
}

struct Net : torch::nn::Module {
  Net() {
    embedding = register_module("embedding", torch::nn::Embedding(10, 16));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
    qkv = register_module("qkv", torch::nn::Linear(16, 48));
    out = register_module("out", torch::nn::Linear(16, 16));
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3).padding(1)));
    group = register_module("group", torch::nn::GroupNorm(torch::nn::GroupNormOptions(4, 8)));
    head = register_module("head", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 3, 1)));
  }

  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor x = embedding(ids);
    const Tensors parts = qkv(norm(x)).view({2, 4, 3, 2, 8}).permute({2, 0, 3, 1, 4}).unbind();
    const at::Tensor attended = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    const at::Tensor y = x + out(attended.transpose(1, 2).reshape({2, 4, 16}));
    const at::Tensor image = conv(y.view({2, 4, 4, 4}));
    return head(at::upsample_nearest2d(at::silu(group(image)), {8, 8}));
  }

  torch::nn::Embedding embedding = nullptr;
  torch::nn::LayerNorm norm = nullptr;
  torch::nn::Linear qkv = nullptr;
  torch::nn::Linear out = nullptr;
  torch::nn::Conv2d conv = nullptr;
  torch::nn::GroupNorm group = nullptr;
  torch::nn::Conv2d head = nullptr;
};

TEST_F(SimulatorKernelsTest, ANetComputesWhatItComputesOnTheCpu) {
  for (const bool inference : {true, false}) {
    const c10::InferenceMode mode(inference);
    Net net;
    const at::Tensor ids = at::tensor({1, 2, 3, 4, 9, 0, 9, 5}, at::kLong).view({2, 4});
    const at::Tensor expected = net.forward(ids);
    for (const at::Tensor& parameter : net.parameters()) {
      const at::Tensor moved = parameter.detach().to(simulator_.device());
      parameter.unsafeGetTensorImpl()->shallow_copy_from(moved.getIntrusivePtr());
    }
    expect_same(net.forward(ids.to(simulator_.device())), expected);
  }
}

}  // namespace
}  // namespace offstage::testing
