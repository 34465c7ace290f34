// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The three components of the pipeline, as ordinary LibTorch modules. None of them knows anything
/// of staging. (A heavy header: it includes torch/nn.)

#include <torch/nn.h>

#include <vector>

namespace text_to_image {

inline constexpr std::int64_t kLatentChannels = 4;
inline constexpr std::int64_t kLatentSide = 8;

/// One pre-norm transformer layer over (batch, tokens, width).
class TransformerLayerImpl : public torch::nn::Module {
 public:
  TransformerLayerImpl(std::int64_t width, std::int64_t heads);
  at::Tensor forward(at::Tensor x);

 private:
  std::int64_t heads_;
  torch::nn::LayerNorm norm1_{nullptr};
  torch::nn::LayerNorm norm2_{nullptr};
  torch::nn::Linear qkv_{nullptr};
  torch::nn::Linear out_{nullptr};
  torch::nn::Linear up_{nullptr};
  torch::nn::Linear down_{nullptr};
};
TORCH_MODULE(TransformerLayer);

/// Token ids (batch, 5) to conditioning vectors (batch, 5, 64).
class TextEncoderImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kWidth = 64;
  explicit TextEncoderImpl(std::int64_t words);
  at::Tensor forward(const at::Tensor& ids);

 private:
  torch::nn::Embedding words_{nullptr};
  at::Tensor places_;
  std::vector<TransformerLayer> layers_;
  torch::nn::LayerNorm norm_{nullptr};
};
TORCH_MODULE(TextEncoder);

/// One layer of the diffusion transformer; the time (and the sense of the text as a whole) shifts,
/// scales and gates what its attention and its feed-forward part do (adaptive layer norm).
class DiffusionLayerImpl : public torch::nn::Module {
 public:
  DiffusionLayerImpl(std::int64_t width, std::int64_t heads);
  at::Tensor forward(at::Tensor x, const at::Tensor& condition);

 private:
  std::int64_t heads_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear adapt_{nullptr};
  torch::nn::Linear qkv_{nullptr};
  torch::nn::Linear out_{nullptr};
  torch::nn::Linear up_{nullptr};
  torch::nn::Linear down_{nullptr};
};
TORCH_MODULE(DiffusionLayer);

/// Predicts the velocity of flow matching: latents (batch, 4, 8, 8), times (batch) in 0..1 and
/// conditioning (batch, 5, 64) to (batch, 4, 8, 8). Zeros as conditioning mean "no prompt".
class DiffusionTransformerImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kWidth = 128;
  DiffusionTransformerImpl();
  at::Tensor forward(const at::Tensor& latents, const at::Tensor& times, const at::Tensor& text);

 private:
  torch::nn::Linear patch_in_{nullptr};
  torch::nn::Linear text_in_{nullptr};
  torch::nn::Linear pooled_in_{nullptr};
  torch::nn::Linear time1_{nullptr};
  torch::nn::Linear time2_{nullptr};
  at::Tensor places_;
  at::Tensor frequencies_;
  std::vector<DiffusionLayer> blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear adapt_{nullptr};
  torch::nn::Linear patch_out_{nullptr};
};
TORCH_MODULE(DiffusionTransformer);

/// Two 3x3 convolutions around a shortcut.
class ResidualImpl : public torch::nn::Module {
 public:
  explicit ResidualImpl(std::int64_t channels);
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::GroupNorm norm1_{nullptr};
  torch::nn::GroupNorm norm2_{nullptr};
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::Conv2d conv2_{nullptr};
};
TORCH_MODULE(Residual);

/// Latents (batch, 4, 8, 8) of unit variance to pictures (batch, 3, 32, 32), channels -1..1.
class VaeDecoderImpl : public torch::nn::Module {
 public:
  VaeDecoderImpl();
  at::Tensor forward(const at::Tensor& latents);

  /// Mean and standard deviation of the encoder's latents, (1, 4, 1, 1); buffers.
  void set_scale(const at::Tensor& mean, const at::Tensor& deviation);

 private:
  at::Tensor mean_;
  at::Tensor deviation_;
  torch::nn::Conv2d first_{nullptr};
  Residual middle_{nullptr};
  torch::nn::Conv2d up1_{nullptr};
  Residual after1_{nullptr};
  torch::nn::Conv2d up2_{nullptr};
  Residual after2_{nullptr};
  torch::nn::GroupNorm norm_{nullptr};
  torch::nn::Conv2d out_{nullptr};
};
TORCH_MODULE(VaeDecoder);

/// Pictures to (mean, logarithm of the variance) of the latents before scaling, (batch, 8, 8, 8).
/// Needed for training only; not shipped.
class VaeEncoderImpl : public torch::nn::Module {
 public:
  VaeEncoderImpl();
  at::Tensor forward(const at::Tensor& pictures);

 private:
  torch::nn::Conv2d first_{nullptr};
  torch::nn::Conv2d down1_{nullptr};
  Residual after1_{nullptr};
  torch::nn::Conv2d down2_{nullptr};
  Residual after2_{nullptr};
  torch::nn::GroupNorm norm_{nullptr};
  torch::nn::Conv2d out_{nullptr};
};
TORCH_MODULE(VaeEncoder);

}  // namespace text_to_image
