// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Shapes of recurrent layers, attention with gradients, pooling in three dimensions, sampling and
/// losses: a part of `result_shapes()`. Heavy: for the units that hold kernels.

#include <offstage/base/config.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// Results without memory; nothing where they are not known before the operation ran.
using Shapes = std::optional<std::vector<at::Tensor>>;

[[nodiscard]] at::Tensor shape_of(at::IntArrayRef sizes, at::ScalarType dtype,
                                  at::MemoryFormat format = at::MemoryFormat::Contiguous);

// Rules of single operations; `operands` are not looked at.
[[nodiscard]] Shapes shapes_of_lstm(const torch::jit::Stack& operands,
                                    const torch::jit::Stack& meta);
[[nodiscard]] Shapes shapes_of_rnn(const torch::jit::Stack& operands,
                                   const torch::jit::Stack& meta);  ///< And of a GRU.
[[nodiscard]] Shapes shapes_of_lstm_cell(const torch::jit::Stack& operands,
                                         const torch::jit::Stack& meta);
[[nodiscard]] Shapes shapes_of_rnn_cell(const torch::jit::Stack& operands,
                                        const torch::jit::Stack& meta);  ///< And of a GRU's.
[[nodiscard]] Shapes shapes_of_max_pool3d(const torch::jit::Stack& operands,
                                          const torch::jit::Stack& meta);
[[nodiscard]] Shapes shapes_of_adaptive_avg_pool3d(const torch::jit::Stack& operands,
                                                   const torch::jit::Stack& meta);
[[nodiscard]] Shapes shapes_of_grid_sampler(const torch::jit::Stack& operands,
                                            const torch::jit::Stack& meta);
[[nodiscard]] Shapes shapes_of_channel_shuffle(const torch::jit::Stack& operands,
                                               const torch::jit::Stack& meta);
[[nodiscard]] Shapes shapes_of_fused_attention(const torch::jit::Stack& operands,
                                               const torch::jit::Stack& meta);
[[nodiscard]] Shapes shapes_of_huber_loss(const torch::jit::Stack& operands,
                                          const torch::jit::Stack& meta);
[[nodiscard]] Shapes shapes_of_binary_cross_entropy(const torch::jit::Stack& operands,
                                                    const torch::jit::Stack& meta);

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
