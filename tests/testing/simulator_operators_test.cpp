// SPDX-License-Identifier: Apache-2.0
#include "simulator_compute_fixture.hpp"

namespace offstage::testing {
namespace {

using SimulatorOperatorsTest = SimulatorComputeTest;

at::Tensor indices(at::IntArrayRef sizes, std::int64_t high) {
  return at::randint(high, sizes, at::kLong);
}

TEST_F(SimulatorOperatorsTest, ArithmeticOnIntegersAndBooleans) {
  const Tensors numbers = {indices({3, 5}, 100) - 50, indices({5}, 9) + 1};
  expect_queued(numbers, [](const Tensors& t) { return t[0] * t[1] + 3 - t[1]; });
  expect_queued(numbers, [](const Tensors& t) { return t[0].floor_divide(t[1]); });
  expect_queued(numbers, [](const Tensors& t) { return t[0].remainder(t[1]); });
  expect_queued(numbers, [](const Tensors& t) { return t[0].bitwise_and(t[1]); });
  expect_queued(numbers, [](const Tensors& t) { return t[0].bitwise_left_shift(t[1]); });
  expect_queued(numbers, [](const Tensors& t) { return t[0].div(t[1]); });
  expect_queued(numbers, [](const Tensors& t) { return t[0].pow(2).to(at::kInt); });
  expect_queued({at::randn({4, 6}), at::randn({6})}, [](const Tensors& t) {
    const at::Tensor larger = t[0] > t[1];
    return larger.logical_and(t[0] < 0).logical_xor(t[1] != 0).logical_or(~larger);
  });
  expect_queued({at::randn({4, 6}).gt(0)}, [](const Tensors& t) {
    return std::make_tuple(t[0].any(1), t[0].all(), t[0].sum(0), t[0].to(at::kFloat));
  });
}

TEST_F(SimulatorOperatorsTest, ChoicesAndMasks) {
  const Tensors inputs = {at::randn({4, 6}), at::randn({6}), at::randn({4, 6}).gt(0)};
  expect_queued(inputs, [](const Tensors& t) { return at::where(t[2], t[0], t[1]); });
  expect_queued(inputs, [](const Tensors& t) { return at::where(t[2], t[0], 0.5); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].masked_fill(t[2], -1e9); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].clone().masked_fill_(t[2], t[1][0]); });
  expect_queued(inputs, [](const Tensors& t) { return at::maximum(t[0], t[1]).clamp_min(0.1); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].triu(1) + t[0].tril(-1); });
  expect_queued(inputs, [](const Tensors& t) { return (t[0] / 0).nan_to_num(0, 1, -1); });
}

TEST_F(SimulatorOperatorsTest, Activations) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    expect_queued({at::randn({4, 6}).to(dtype)}, [](const Tensors& t) {
      return Tensors{at::softmax(t[0], -1),
                     at::log_softmax(t[0], 0),
                     at::gelu(t[0]),
                     at::gelu(t[0], "tanh"),
                     at::silu(t[0]),
                     at::relu(t[0]),
                     at::leaky_relu(t[0], .2),
                     at::hardswish(t[0]),
                     at::mish(t[0]),
                     at::softplus(t[0]),
                     at::elu(t[0]),
                     at::tanh(t[0]),
                     at::sigmoid(t[0]),
                     at::glu(t[0], 1)};
    });
  }
}

TEST_F(SimulatorOperatorsTest, ElementwiseFunctions) {
  expect_queued({at::rand({4, 6}) + 0.5}, [](const Tensors& t) {
    return Tensors{t[0].exp(),   t[0].log(),  t[0].sqrt(),    t[0].rsqrt(), t[0].sin(),
                   t[0].cos(),   t[0].abs(),  t[0].neg(),     t[0].erf(),   t[0].pow(1.5),
                   t[0].round(), t[0].ceil(), t[0].expm1(),   t[0].log2(),  t[0].reciprocal(),
                   t[0].sign(),  t[0].frac(), t[0].square(),  t[0].trunc(), t[0].lerp(t[0], 0.3),
                   t[0].isnan(), t[0].atan(), t[0].isfinite()};
  });
}

TEST_F(SimulatorOperatorsTest, Reductions) {
  expect_queued({at::randn({3, 4, 5})}, [](const Tensors& t) {
    return Tensors{t[0].sum(),     t[0].mean({1, 2}),
                   t[0].prod(0),   t[0].var({-1}, false, true),
                   t[0].std(1),    t[0].logsumexp({-1}),
                   t[0].amax(-1),  t[0].argmin(1),
                   t[0].norm(),    at::linalg_vector_norm(t[0], 2, at::IntArrayRef{1}),
                   t[0].cumsum(1), t[0].cumprod(0)};
  });
  expect_queued({at::randn({3, 4})}, [](const Tensors& t) { return t[0].max(1); });
  expect_queued({at::randn({3, 4})}, [](const Tensors& t) { return at::var_mean(t[0], 1); });
}

TEST_F(SimulatorOperatorsTest, SortingAndTheLargest) {
  expect_queued({at::randn({3, 7})}, [](const Tensors& t) { return t[0].sort(-1, true); });
  expect_queued({at::randn({3, 7})}, [](const Tensors& t) { return t[0].argsort(1, false); });
  expect_queued({at::randn({3, 7})}, [](const Tensors& t) { return t[0].topk(3); });
}

TEST_F(SimulatorOperatorsTest, GatheringAndScattering) {
  const Tensors inputs = {at::randn({4, 6}),
                          indices({4, 6}, 4),
                          at::randn({4, 6}),
                          at::tensor({2, 0, 3}, at::kLong),
                          at::tensor({5, 1, 1}, at::kLong),
                          at::randn({3})};
  expect_queued(inputs, [](const Tensors& t) { return t[0].gather(0, t[1]); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].scatter(0, t[1], 2.0); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].scatter_add(0, t[1], t[2]); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].index_select(1, t[4]); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].index({t[3], t[4]}); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].index_put({t[3], t[4]}, t[5]); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].clone().index_put_({t[3]}, t[2][0]); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].index_add(0, t[3], t[2].slice(0, 1)); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].index_fill(0, t[3], 7.0); });
  expect_queued(inputs, [](const Tensors& t) { return at::embedding(t[0], t[1]); });
  expect_queued(inputs, [](const Tensors& t) { return at::one_hot(t[3], 6); });
}

TEST_F(SimulatorOperatorsTest, JoiningPaddingAndProducts) {
  const Tensors inputs = {at::randn({2, 3, 4}), at::randn({2, 3, 4}), at::randn({4, 5})};
  expect_queued(inputs, [](const Tensors& t) { return at::cat({t[0], t[1]}, 1); });
  expect_queued(inputs, [](const Tensors& t) { return at::stack({t[0], t[1]}, -1); });
  expect_queued(inputs, [](const Tensors& t) {
    const Tensors pieces = t[0].chunk(3, 1);
    return at::cat({pieces[2], pieces[0]}, 0);
  });
  expect_queued(inputs, [](const Tensors& t) { return at::pad(t[0], {1, 2}); });
  expect_queued(inputs, [](const Tensors& t) { return at::pad(t[0], {1, 2}, "replicate"); });
  expect_queued(inputs, [](const Tensors& t) { return at::pad(t[0], {1, 2}, "reflect"); });
  expect_queued(inputs, [](const Tensors& t) { return at::pad(t[0], {1, 2}, "circular"); });
  expect_queued({at::randn({2, 3, 4, 5})}, [](const Tensors& t) {
    return at::pad(t[0], {1, 2, 3, 0}, "reflect");
  });
  expect_queued(inputs, [](const Tensors& t) { return t[0].roll({1, 2}, {0, 2}).flip({1}); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].repeat_interleave(2, 1); });
  expect_queued(inputs, [](const Tensors& t) { return at::einsum("bij,bkj->bik", {t[0], t[1]}); });
  expect_queued(inputs, [](const Tensors& t) { return at::einsum("bij,jk->kbi", {t[0], t[2]}); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].bmm(t[1].transpose(1, 2)); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].matmul(t[2]); });
  expect_queued(inputs, [](const Tensors& t) { return at::outer(t[2][0], t[2][1]); });
}

TEST_F(SimulatorOperatorsTest, ResizingPictures) {
  const Tensors image = {at::randn({2, 4, 5, 6})};
  expect_queued(image, [](const Tensors& t) { return at::upsample_nearest2d(t[0], {10, 9}); });
  expect_queued(image, [](const Tensors& t) {
    return at::_upsample_nearest_exact2d(t[0], {10, 9});
  });
  for (const bool corners : {false, true}) {
    expect_queued(image, [=](const Tensors& t) {
      return at::upsample_bilinear2d(t[0], {10, 9}, corners);
    });
    expect_queued(image, [=](const Tensors& t) {
      return at::upsample_bicubic2d(t[0], {3, 9}, corners);
    });
  }
  expect_queued(image, [](const Tensors& t) {
    return at::_upsample_bilinear2d_aa(t[0], {3, 4}, false);
  });
  expect_queued({image[0].contiguous(at::MemoryFormat::ChannelsLast)}, [](const Tensors& t) {
    return at::upsample_nearest2d(t[0], {10, 9});
  });
  expect_queued({at::randn({1, 4, 3, 4, 4})}, [](const Tensors& t) {
    return at::upsample_nearest3d(t[0], {6, 8, 8});
  });
  expect_queued(image, [](const Tensors& t) { return at::pixel_shuffle(t[0], 2); });
}

TEST_F(SimulatorOperatorsTest, Pooling) {
  const Tensors image = {at::randn({2, 4, 8, 8})};
  expect_queued(image, [](const Tensors& t) { return at::max_pool2d_with_indices(t[0], 2); });
  expect_queued(image, [](const Tensors& t) { return at::max_pool2d(t[0], 3, 2, 1); });
  expect_queued(image, [](const Tensors& t) { return at::avg_pool2d(t[0], 2); });
  expect_queued(image, [](const Tensors& t) { return at::adaptive_avg_pool2d(t[0], {3, 3}); });
  expect_queued(image, [](const Tensors& t) { return at::adaptive_avg_pool2d(t[0], {1, 1}); });
  expect_queued(image, [](const Tensors& t) { return at::adaptive_max_pool2d(t[0], {3, 2}); });
  expect_queued({at::randn({2, 4, 8})}, [](const Tensors& t) { return at::avg_pool1d(t[0], 2); });
  expect_queued({at::randn({2, 4, 4, 4, 4})},
                [](const Tensors& t) { return at::avg_pool3d(t[0], 2); });
}

TEST_F(SimulatorOperatorsTest, HalfPrecision) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const Tensors inputs = {at::randn({2, 3, 8}).to(dtype), at::randn({5, 8}).to(dtype),
                            at::randn({5}).to(dtype)};
    expect_queued(inputs, [](const Tensors& t) { return at::linear(t[0], t[1], t[2]); });
    expect_queued(inputs, [](const Tensors& t) { return at::layer_norm(t[0], {8}); });
    expect_queued(inputs, [](const Tensors& t) { return t[0].sum(-1) + t[0].mean(-1); });
    expect_queued(inputs, [](const Tensors& t) { return (t[0] * 3).to(at::kFloat) + 1; });
    expect_queued(inputs, [](const Tensors& t) { return t[0].bmm(t[0].transpose(1, 2)); });
  }
}

TEST_F(SimulatorOperatorsTest, ComplexNumbers) {
  const Tensors inputs = {at::randn({3, 4}, at::kComplexFloat), at::randn({3, 4})};
  expect_queued(inputs, [](const Tensors& t) { return t[0] * t[0].conj() + t[1]; });
  expect_queued(inputs, [](const Tensors& t) { return at::polar(t[1].abs(), t[1]) * t[0]; });
  expect_queued(inputs, [](const Tensors& t) { return at::complex(t[1], t[1]).matmul(t[0].t()); });
  expect_queued(inputs, [](const Tensors& t) { return at::real(t[0]) + at::imag(t[0]).abs(); });
  expect_same(inputs, [](const Tensors& t) { return at::view_as_real(t[0]).flatten(-2); });
  expect_queued(inputs, [](const Tensors& t) { return t[0].abs() + t[0].angle(); });
}

TEST_F(SimulatorOperatorsTest, ResultsWhoseSizeDependsOnTheDataAreWaitedFor) {
  const Tensors inputs = {at::tensor({3.0F, 0.0F, 2.0F}), at::tensor({2, 0, 2}, at::kLong)};
  expect_same(inputs, [](const Tensors& t) { return t[0].nonzero(); });
  EXPECT_EQ(work_.kernel_waits, 1);
  expect_same(inputs, [](const Tensors& t) { return t[0].masked_select(t[0] > 1); });
  EXPECT_EQ(work_.kernel_waits, 1);
  expect_same(inputs, [](const Tensors& t) { return at::_unique2(t[1]); });
  EXPECT_EQ(work_.kernel_waits, 1);
  expect_same(inputs, [](const Tensors& t) { return at::repeat_interleave(t[1]); });
  EXPECT_EQ(work_.kernel_waits, 1);
}

}  // namespace
}  // namespace offstage::testing
