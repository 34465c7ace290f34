// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"

#include <cmath>
#include <string>

namespace text_to_image {

namespace nn = torch::nn;

namespace {

constexpr std::int64_t kPromptLength = 5;
constexpr std::int64_t kPatch = 2;
constexpr std::int64_t kGrid = kLatentSide / kPatch;
constexpr std::int64_t kPatchValues = kLatentChannels * kPatch * kPatch;

/// Attention of every token to every token; `qkv` is (batch, tokens, 3 * width).
at::Tensor attend(const at::Tensor& qkv, std::int64_t heads) {
  const auto batch = qkv.size(0);
  const auto tokens = qkv.size(1);
  const auto width = qkv.size(2) / 3;
  const auto parts = qkv.view({batch, tokens, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
  const auto mixed = at::scaled_dot_product_attention(parts.select(0, 0).contiguous(),
                                                      parts.select(0, 1).contiguous(),
                                                      parts.select(0, 2).contiguous());
  return mixed.transpose(1, 2).reshape({batch, tokens, width});
}

at::Tensor modulate(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale) {
  return x * (scale + 1).unsqueeze(1) + shift.unsqueeze(1);
}

nn::LayerNorm plain_norm(std::int64_t width) {
  return nn::LayerNorm(nn::LayerNormOptions({width}).elementwise_affine(false));
}

nn::Linear zeroed(nn::Linear linear) {
  torch::NoGradGuard no_grad;
  linear->weight.zero_();
  linear->bias.zero_();
  return linear;
}

nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t stride = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1));
}

at::Tensor twice_as_large(const at::Tensor& x) {
  return at::upsample_nearest2d(x, {x.size(2) * 2, x.size(3) * 2});
}

}  // namespace

TransformerLayerImpl::TransformerLayerImpl(std::int64_t width, std::int64_t heads) : heads_(heads) {
  norm1_ = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
  norm2_ = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
  qkv_ = register_module("qkv", nn::Linear(width, 3 * width));
  out_ = register_module("out", nn::Linear(width, width));
  up_ = register_module("up", nn::Linear(width, 4 * width));
  down_ = register_module("down", nn::Linear(4 * width, width));
}

at::Tensor TransformerLayerImpl::forward(at::Tensor x) {
  x = x + out_(attend(qkv_(norm1_(x)), heads_));
  return x + down_(at::gelu(up_(norm2_(x)), "tanh"));
}

TextEncoderImpl::TextEncoderImpl(std::int64_t words) {
  words_ = register_module("words", nn::Embedding(words, kWidth));
  places_ = register_parameter("places", torch::randn({1, kPromptLength, kWidth}) * 0.1);
  for (int i = 0; i < 2; ++i) {
    layers_.push_back(register_module("layers_" + std::to_string(i), TransformerLayer(kWidth, 4)));
  }
  norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
}

at::Tensor TextEncoderImpl::forward(const at::Tensor& ids) {
  auto x = words_(ids) + places_;
  for (auto& layer : layers_) x = layer(x);
  return norm_(x);
}

DiffusionLayerImpl::DiffusionLayerImpl(std::int64_t width, std::int64_t heads) : heads_(heads) {
  norm_ = register_module("norm", plain_norm(width));
  adapt_ = register_module("adapt", zeroed(nn::Linear(width, 6 * width)));
  qkv_ = register_module("qkv", nn::Linear(width, 3 * width));
  out_ = register_module("out", nn::Linear(width, width));
  up_ = register_module("up", nn::Linear(width, 4 * width));
  down_ = register_module("down", nn::Linear(4 * width, width));
}

at::Tensor DiffusionLayerImpl::forward(at::Tensor x, const at::Tensor& condition) {
  const auto c = adapt_(condition).chunk(6, 1);
  x = x + c[2].unsqueeze(1) * out_(attend(qkv_(modulate(norm_(x), c[0], c[1])), heads_));
  return x + c[5].unsqueeze(1) * down_(at::gelu(up_(modulate(norm_(x), c[3], c[4])), "tanh"));
}

DiffusionTransformerImpl::DiffusionTransformerImpl() {
  constexpr std::int64_t kBlocks = 6;
  constexpr std::int64_t kHeads = 4;
  patch_in_ = register_module("patch_in", nn::Linear(kPatchValues, kWidth));
  text_in_ = register_module("text_in", nn::Linear(TextEncoderImpl::kWidth, kWidth));
  pooled_in_ =
      register_module("pooled_in", nn::Linear(kPromptLength * TextEncoderImpl::kWidth, kWidth));
  time1_ = register_module("time1", nn::Linear(kWidth, kWidth));
  time2_ = register_module("time2", nn::Linear(kWidth, kWidth));
  places_ =
      register_parameter("places", torch::randn({1, kGrid * kGrid + kPromptLength, kWidth}) * 0.1);
  frequencies_ = register_buffer(
      "frequencies",
      torch::exp(torch::arange(kWidth / 2, torch::kFloat) * (-std::log(10000.0) / (kWidth / 2))) *
          1000.0);
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    blocks_.push_back(
        register_module("blocks_" + std::to_string(i), DiffusionLayer(kWidth, kHeads)));
  }
  norm_ = register_module("norm", plain_norm(kWidth));
  adapt_ = register_module("adapt", zeroed(nn::Linear(kWidth, 2 * kWidth)));
  patch_out_ = register_module("patch_out", zeroed(nn::Linear(kWidth, kPatchValues)));
}

at::Tensor DiffusionTransformerImpl::forward(const at::Tensor& latents, const at::Tensor& times,
                                             const at::Tensor& text) {
  const auto batch = latents.size(0);
  const auto patches = latents.reshape({batch, kLatentChannels, kGrid, kPatch, kGrid, kPatch})
                           .permute({0, 2, 4, 1, 3, 5})
                           .reshape({batch, kGrid * kGrid, kPatchValues});
  const auto angles = times.unsqueeze(1) * frequencies_.unsqueeze(0);
  const auto waves = at::cat({at::cos(angles), at::sin(angles)}, 1);
  const auto condition =
      at::silu(time2_(at::silu(time1_(waves))) + pooled_in_(text.reshape({batch, -1})));
  auto x = at::cat({patch_in_(patches), text_in_(text)}, 1) + places_;
  for (auto& block : blocks_) x = block(x, condition);
  const auto c = adapt_(condition).chunk(2, 1);
  x = patch_out_(modulate(norm_(x.narrow(1, 0, kGrid * kGrid)), c[0], c[1]));
  return x.reshape({batch, kGrid, kGrid, kLatentChannels, kPatch, kPatch})
      .permute({0, 3, 1, 4, 2, 5})
      .reshape({batch, kLatentChannels, kLatentSide, kLatentSide});
}

ResidualImpl::ResidualImpl(std::int64_t channels) {
  norm1_ = register_module("norm1", nn::GroupNorm(8, channels));
  conv1_ = register_module("conv1", conv(channels, channels));
  norm2_ = register_module("norm2", nn::GroupNorm(8, channels));
  conv2_ = register_module("conv2", conv(channels, channels));
}

at::Tensor ResidualImpl::forward(const at::Tensor& x) {
  return x + conv2_(at::silu(norm2_(conv1_(at::silu(norm1_(x))))));
}

VaeDecoderImpl::VaeDecoderImpl() {
  mean_ = register_buffer("mean", torch::zeros({1, kLatentChannels, 1, 1}));
  deviation_ = register_buffer("deviation", torch::ones({1, kLatentChannels, 1, 1}));
  first_ = register_module("first", conv(kLatentChannels, 64));
  middle_ = register_module("middle", Residual(64));
  up1_ = register_module("up1", conv(64, 48));
  after1_ = register_module("after1", Residual(48));
  up2_ = register_module("up2", conv(48, 24));
  after2_ = register_module("after2", Residual(24));
  norm_ = register_module("norm", nn::GroupNorm(8, 24));
  out_ = register_module("out", conv(24, 3));
}

at::Tensor VaeDecoderImpl::forward(const at::Tensor& latents) {
  auto x = middle_(first_(latents * deviation_ + mean_));
  x = after1_(up1_(twice_as_large(x)));
  x = after2_(up2_(twice_as_large(x)));
  return out_(at::silu(norm_(x)));
}

void VaeDecoderImpl::set_scale(const at::Tensor& mean, const at::Tensor& deviation) {
  torch::NoGradGuard no_grad;
  mean_.copy_(mean);
  deviation_.copy_(deviation);
}

VaeEncoderImpl::VaeEncoderImpl() {
  first_ = register_module("first", conv(3, 24));
  down1_ = register_module("down1", conv(24, 48, 2));
  after1_ = register_module("after1", Residual(48));
  down2_ = register_module("down2", conv(48, 64, 2));
  after2_ = register_module("after2", Residual(64));
  norm_ = register_module("norm", nn::GroupNorm(8, 64));
  out_ = register_module("out", conv(64, 2 * kLatentChannels));
}

at::Tensor VaeEncoderImpl::forward(const at::Tensor& pictures) {
  auto x = after1_(down1_(first_(pictures)));
  x = after2_(down2_(x));
  return out_(at::silu(norm_(x)));
}

}  // namespace text_to_image
