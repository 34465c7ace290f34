// SPDX-License-Identifier: Apache-2.0
#include "simulator_compute_fixture.hpp"

#include <torch/nn.h>

namespace offstage::testing {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

class SimulatorModelsTest : public SimulatorComputeTest {
 protected:
  // Makes the module twice, one for each device; afterwards their buffers are the same too.
  template <typename Make, typename Forward>
  void expect_same_module(const Make& make, const Tensors& inputs, const Forward& forward,
                          int waits = 0) {
    at::manual_seed(11);
    auto here = make();
    at::manual_seed(11);
    auto there = make();
    for (const Tensors& tensors : {there->parameters(), there->buffers()}) {
      for (const at::Tensor& tensor : tensors) {
        const at::Tensor moved = tensor.detach().to(simulator_.device());
        tensor.unsafeGetTensorImpl()->shallow_copy_from(moved.getIntrusivePtr());
      }
    }
    expect_same(inputs, [&](const Tensors& t) { return forward(t[0].is_cpu() ? here : there, t); });
    EXPECT_EQ(work_.kernel_waits, waits);
    EXPECT_EQ(work_.host_waits, 0);
    const Tensors expected = here->buffers();
    const Tensors buffers = there->buffers();
    for (std::size_t i = 0; i < buffers.size(); ++i) expect_same(buffers[i], expected[i]);
  }

  template <typename Make>
  void expect_same_layer(const Make& make, const at::Tensor& input, int waits = 0) {
    expect_same_module(
        make, {input}, [](auto& layer, const Tensors& t) { return layer->forward(t[0]); }, waits);
  }

  // LibTorch's attention layer asks twice whether its arguments are equal, with `at::equal`.
  static constexpr int kWaitsOfAttention = 2;
};

TEST_F(SimulatorModelsTest, ConvolutionLayers) {
  const at::Tensor line = at::randn({2, 4, 9});
  const at::Tensor image = at::randn({2, 4, 9, 8});
  const at::Tensor video = at::randn({1, 4, 3, 6, 6});
  expect_same_layer([] { return nn::Conv1d(nn::Conv1dOptions(4, 6, 3).stride(2)); }, line);
  expect_same_layer([] { return nn::Conv2d(nn::Conv2dOptions(4, 6, 3).padding(1)); }, image);
  expect_same_layer([] { return nn::Conv2d(nn::Conv2dOptions(4, 8, 3).groups(2).dilation(2)); },
                    image);
  expect_same_layer(
      [] {
        return nn::Conv2d(
            nn::Conv2dOptions(4, 4, 3).padding(1).padding_mode(torch::kReflect).bias(false));
      },
      image);
  expect_same_layer([] { return nn::Conv3d(nn::Conv3dOptions(4, 6, {1, 3, 3})); }, video);
  expect_same_layer([] { return nn::Conv2d(nn::Conv2dOptions(4, 6, 3)); },
                    image.contiguous(at::MemoryFormat::ChannelsLast));
  expect_same_layer([] { return nn::Conv2d(nn::Conv2dOptions(4, 6, 3)); }, image[0]);
}

TEST_F(SimulatorModelsTest, TransposedConvolutionLayers) {
  expect_same_layer([] { return nn::ConvTranspose1d(nn::ConvTranspose1dOptions(4, 6, 3)); },
                    at::randn({2, 4, 9}));
  expect_same_layer(
      [] {
        return nn::ConvTranspose2d(
            nn::ConvTranspose2dOptions(4, 6, 3).stride(2).padding(1).output_padding(1));
      },
      at::randn({2, 4, 5, 6}));
  expect_same_layer([] { return nn::ConvTranspose3d(nn::ConvTranspose3dOptions(4, 2, 2)); },
                    at::randn({1, 4, 2, 3, 3}));
}

TEST_F(SimulatorModelsTest, LinearAndEmbeddingLayers) {
  expect_same_layer([] { return nn::Linear(8, 12); }, at::randn({2, 3, 8}));
  expect_same_layer([] { return nn::Linear(nn::LinearOptions(8, 12).bias(false)); },
                    at::randn({8}));
  expect_same_layer([] { return nn::Embedding(10, 6); }, at::randint(10, {2, 5}, at::kLong));
}

TEST_F(SimulatorModelsTest, NormalizationLayers) {
  const at::Tensor image = at::randn({2, 8, 5, 4});
  expect_same_layer([] { return nn::LayerNorm(nn::LayerNormOptions({5, 4})); }, image);
  expect_same_layer([] { return nn::GroupNorm(nn::GroupNormOptions(4, 8)); }, image);
  expect_same_layer([] { return nn::GroupNorm(nn::GroupNormOptions(4, 8)); },
                    image.contiguous(at::MemoryFormat::ChannelsLast));
  expect_same_layer([] { return nn::InstanceNorm2d(8); }, image);
}

TEST_F(SimulatorModelsTest, BatchNormalizationUpdatesItsStatisticsOnlyInTraining) {
  for (const bool training : {true, false}) {
    expect_same_layer(
        [=] {
          nn::BatchNorm2d layer(8);
          layer->train(training);
          return layer;
        },
        at::randn({2, 8, 5, 4}) + 1);
    expect_same_layer(
        [=] {
          nn::BatchNorm1d layer(8);
          layer->train(training);
          return layer;
        },
        at::randn({6, 8}) + 1);
  }
}

TEST_F(SimulatorModelsTest, MultiheadAttentionInEvaluation) {
  const Tensors inputs = {at::randn({5, 2, 16})};
  expect_same_module(
      [] {
        nn::MultiheadAttention layer(nn::MultiheadAttentionOptions(16, 4).dropout(0.3));
        layer->eval();
        return layer;
      },
      inputs, [](auto& layer, const Tensors& t) { return layer(t[0], t[0], t[0]); },
      kWaitsOfAttention);
}

TEST_F(SimulatorModelsTest, ATransformerEncoderInEvaluation) {
  expect_same_layer(
      [] {
        nn::TransformerEncoderLayer layer(
            nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32).activation(torch::kGELU));
        layer->eval();
        nn::TransformerEncoder encoder(nn::TransformerEncoderOptions(layer, 2));
        encoder->eval();
        return encoder;
      },
      at::randn({5, 2, 16}), 2 * kWaitsOfAttention);
}

TEST_F(SimulatorModelsTest, APictureThroughANetOfEveryScale) {
  expect_same_layer(
      [] {
        nn::Sequential net(
            nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::BatchNorm2d(8), nn::SiLU(),
            nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(8, 16, 3).padding(1)),
            nn::GroupNorm(nn::GroupNormOptions(4, 16)), nn::GELU(), nn::Dropout(0.5),
            nn::AvgPool2d(2),
            nn::Upsample(nn::UpsampleOptions().size(std::vector<std::int64_t>{8, 8})),
            nn::ConvTranspose2d(nn::ConvTranspose2dOptions(16, 8, 2).stride(2)),
            nn::PixelShuffle(2), nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({4, 4})),
            nn::Flatten(), nn::Linear(32, 10), nn::Softmax(1));
        net->eval();
        return net;
      },
      at::randn({2, 3, 16, 16}));
}

TEST_F(SimulatorModelsTest, InterpolationAndPadding) {
  expect_queued({at::randn({1, 3, 5, 6})}, [](const Tensors& t) {
    const auto options = F::InterpolateFuncOptions().size(std::vector<std::int64_t>{10, 9});
    auto bilinear = options;
    bilinear.mode(torch::kBilinear).align_corners(false);
    return Tensors{F::interpolate(t[0], options), F::interpolate(t[0], bilinear),
                   F::pad(t[0], F::PadFuncOptions({1, 2, 3, 4}).mode(torch::kReplicate))};
  });
}

TEST_F(SimulatorModelsTest, ModulesInLowPrecision) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    expect_same_layer(
        [=] {
          nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(4, 8, 3).padding(1)),
                             nn::GroupNorm(nn::GroupNormOptions(4, 8)), nn::SiLU(),
                             nn::Flatten(nn::FlattenOptions().start_dim(2)),
                             nn::LayerNorm(nn::LayerNormOptions({16})), nn::Linear(16, 4));
          net->to(dtype);
          return net;
        },
        at::randn({2, 4, 4, 4}).to(dtype));
  }
}

}  // namespace
}  // namespace offstage::testing
