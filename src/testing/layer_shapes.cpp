// SPDX-License-Identifier: Apache-2.0
#include "layer_shapes.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/Pool.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/transpose_ops.h>

#include <algorithm>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

using torch::jit::Stack;

at::Tensor like(const at::Tensor& meta, at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  return at::_ops::empty_like::call(meta, meta.scalar_type(), std::nullopt, std::nullopt,
                                    std::nullopt, format);
}

// The last arguments are bidirectional and batch_first.
Shapes of_sequence(const Stack& meta, const std::vector<at::Tensor>& states) {
  const at::Tensor& input = meta[0].toTensor();
  if (input.dim() != 3 || states.empty()) return std::nullopt;
  for (const at::Tensor& state : states) {
    if (state.dim() != 3) return std::nullopt;
  }
  const bool batch_first = meta[meta.size() - 1].toBool();
  const std::int64_t directions = meta[meta.size() - 2].toBool() ? 2 : 1;
  const std::int64_t steps = input.size(batch_first ? 1 : 0);
  const std::int64_t batch = input.size(batch_first ? 0 : 1);
  const at::Tensor output =
      shape_of({steps, batch, states[0].size(2) * directions}, input.scalar_type());
  std::vector<at::Tensor> shapes = {batch_first ? at::_ops::transpose_int::call(output, 0, 1)
                                                : output};
  for (const at::Tensor& state : states) shapes.push_back(like(state));
  return shapes;
}

Shapes of_loss(const at::Tensor& input, std::int64_t reduction) {
  if (reduction == at::Reduction::None) return {{like(input, at::MemoryFormat::Preserve)}};
  return {{shape_of({}, input.scalar_type())}};
}

}  // namespace

at::Tensor shape_of(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) {
  return at::detail::empty_meta(sizes, dtype, std::nullopt, c10::Device(at::kMeta), std::nullopt,
                                format);
}

Shapes shapes_of_lstm(const Stack& /*operands*/, const Stack& meta) {
  return of_sequence(meta, meta[1].toTensorVector());
}

Shapes shapes_of_rnn(const Stack& /*operands*/, const Stack& meta) {
  return of_sequence(meta, {meta[1].toTensor()});
}

Shapes shapes_of_lstm_cell(const Stack& /*operands*/, const Stack& meta) {
  std::vector<at::Tensor> shapes;
  for (const at::Tensor& state : meta[1].toTensorVector()) shapes.push_back(like(state));
  return shapes;
}

Shapes shapes_of_rnn_cell(const Stack& /*operands*/, const Stack& meta) {
  return {{like(meta[1].toTensor())}};
}

Shapes shapes_of_max_pool3d(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& input = meta[0].toTensor();
  const auto each = [&meta](std::size_t argument) {
    const auto values = meta[argument].toDimVector();
    return values.size() == 1 ? c10::DimVector(3, values[0]) : values;
  };
  const auto kernel = each(1);
  const auto stride = meta[2].toDimVector().empty() ? kernel : each(2);
  const auto padding = each(3);
  const auto dilation = each(4);
  for (const auto* values : {&kernel, &stride, &padding, &dilation}) {
    if (values->size() != 3) return std::nullopt;
  }
  if (input.dim() < 4 || input.dim() > 5 || !input.is_contiguous()) return std::nullopt;
  c10::DimVector sizes(input.sizes());
  for (std::size_t i = 0; i < 3; ++i) {
    if (kernel[i] <= 0 || stride[i] <= 0 || dilation[i] <= 0 || padding[i] > kernel[i] / 2) {
      return std::nullopt;
    }
    std::int64_t& size = sizes[sizes.size() - 3 + i];
    size = at::native::pooling_output_shape<std::int64_t>(size, kernel[i], padding[i], stride[i],
                                                          dilation[i], meta[5].toBool());
    if (size < 1) return std::nullopt;
  }
  return {{shape_of(sizes, input.scalar_type()), shape_of(sizes, at::kLong)}};
}

Shapes shapes_of_adaptive_avg_pool3d(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& input = meta[0].toTensor();
  const auto last = meta[1].toDimVector();
  if (input.dim() < 4 || last.size() != 3 || !input.is_contiguous()) return std::nullopt;
  c10::DimVector sizes(input.sizes());
  std::copy(last.begin(), last.end(), sizes.end() - 3);
  return {{shape_of(sizes, input.scalar_type())}};
}

// The grid has the places of the result, and as its last dimension where they are taken from.
Shapes shapes_of_grid_sampler(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& input = meta[0].toTensor();
  const at::Tensor& grid = meta[1].toTensor();
  if (input.dim() < 4 || grid.dim() != input.dim() || grid.size(0) != input.size(0) ||
      grid.size(-1) != input.dim() - 2 || grid.scalar_type() != input.scalar_type() ||
      !input.is_contiguous()) {
    return std::nullopt;
  }
  c10::DimVector sizes = {input.size(0), input.size(1)};
  for (std::int64_t i = 1; i + 1 < grid.dim(); ++i) sizes.push_back(grid.size(i));
  return {{shape_of(sizes, input.scalar_type())}};
}

Shapes shapes_of_channel_shuffle(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& input = meta[0].toTensor();
  const std::int64_t groups = meta[1].toInt();
  if (input.dim() < 3 || groups <= 0 || input.size(1) % groups != 0) return std::nullopt;
  return {{like(input, input.suggest_memory_format())}};
}

// The second result, for the gradient, is kept in another order of its dimensions.
Shapes shapes_of_fused_attention(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& query = meta[0].toTensor();
  if (query.dim() != 4) return std::nullopt;
  const at::ScalarType type = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor sums = shape_of({query.size(0), query.size(2), query.size(1)}, type);
  return {{like(query, at::MemoryFormat::Preserve), at::_ops::transpose_int::call(sums, 1, 2)}};
}

Shapes shapes_of_huber_loss(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& input = meta[0].toTensor();
  const at::Tensor& target = meta[1].toTensor();
  if (target.sizes() != input.sizes() || target.scalar_type() != input.scalar_type()) {
    return std::nullopt;
  }
  return of_loss(input, meta[2].toInt());
}

Shapes shapes_of_binary_cross_entropy(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& input = meta[0].toTensor();
  const at::Tensor& target = meta[1].toTensor();
  if (target.sizes() != input.sizes() || target.scalar_type() != input.scalar_type()) {
    return std::nullopt;
  }
  return of_loss(input, meta[3].toInt());
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
