// SPDX-License-Identifier: Apache-2.0
#include "layer_shapes.hpp"
#include "result_shapes.hpp"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/mean_ops.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <string>
#include <unordered_map>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

using torch::jit::Stack;

at::Tensor like(const at::Tensor& meta, at::ScalarType dtype, at::MemoryFormat format) {
  return at::_ops::empty_like::call(meta, dtype, std::nullopt, std::nullopt, std::nullopt, format);
}

bool is_defined(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

// Statistics of low precision inputs are kept in float if the weights are.
at::ScalarType statistics_type(const at::Tensor& input, const c10::IValue& weight) {
  const bool mixed = is_defined(weight) && weight.toTensor().scalar_type() != input.scalar_type();
  return mixed ? at::kFloat : input.scalar_type();
}

// --- one element of the result for one of each operand ---

at::Tensor iterate(const Stack& meta, std::optional<at::ScalarType> dtype) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false);
  if (dtype) {
    config.declare_static_dtype(*dtype);
  } else {
    config.promote_inputs_to_common_dtype(true);
  }
  std::vector<at::Tensor> inputs;
  for (const c10::IValue& value : meta) {
    if (is_defined(value)) inputs.push_back(value.toTensor());
  }
  config.add_owned_output(at::Tensor());
  for (const at::Tensor& input : inputs) config.add_owned_const_input(input);
  return config.build().output();
}

Shapes of_common_type(const Stack& /*operands*/, const Stack& meta) {
  return {{iterate(meta, std::nullopt)}};
}

Shapes booleans(const Stack& /*operands*/, const Stack& meta) {
  return {{iterate(meta, at::kBool)}};
}

Shapes angles(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& self = meta[0].toTensor();
  if (at::isIntegralType(self.scalar_type(), /*includeBool=*/true)) return std::nullopt;
  return {{iterate(meta, c10::toRealValueType(self.scalar_type()))}};
}

// The last argument is `out`, which may still be empty.
Shapes in_out(const Stack& /*operands*/, const Stack& meta) {
  return {{iterate(Stack(meta.begin(), meta.end() - 1), meta.back().toTensor().scalar_type())}};
}

Shapes flipped(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& self = meta[0].toTensor();
  return {{like(self, self.scalar_type(), at::MemoryFormat::Preserve)}};
}

Shapes rolled(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& self = meta[0].toTensor();
  return {{shape_of(self.sizes(), self.scalar_type())}};
}

// --- the layers of a net ---

Shapes convolution(const Stack& operands, const Stack& /*meta*/) {
  const at::Tensor& input = operands[0].toTensor();
  const at::Tensor& weight = operands[1].toTensor();
  const std::optional<at::Tensor> bias = operands[2].toOptional<at::Tensor>();
  const auto stride = operands[3].toDimVector();
  const auto padding = operands[4].toDimVector();
  const auto dilation = operands[5].toDimVector();
  const bool transposed = operands[6].toBool();
  const auto output_padding = operands[7].toDimVector();
  const std::int64_t groups = operands[8].toInt();
  // Throws if the arguments do not fit each other.
  const auto backend = at::native::select_conv_backend(
      input, weight, bias && bias->defined() ? bias : std::nullopt,
      c10::fromIntArrayRefSlow(stride), c10::fromIntArrayRefSlow(padding),
      c10::fromIntArrayRefSlow(dilation), transposed, c10::fromIntArrayRefSlow(output_padding),
      groups, std::nullopt);
  const auto dimensions = static_cast<std::size_t>(input.dim() - 2);
  const auto each = [dimensions](const c10::DimVector& values) {
    return values.size() == dimensions ? values : c10::DimVector(dimensions, values.at(0));
  };
  const std::vector<std::int64_t> sizes =
      transposed
          ? at::native::conv_input_size(input.sizes(), weight.sizes(), each(padding),
                                        each(output_padding), each(stride), each(dilation), groups)
          : at::native::conv_output_size(input.sizes(), weight.sizes(), each(padding), each(stride),
                                         each(dilation));
  const auto format = input.dim() < 4
                          ? at::MemoryFormat::Contiguous
                          : at::native::_determine_backend_memory_format(input, weight, backend);
  return {{shape_of(sizes, input.scalar_type(), format)}};
}

Shapes layer_norm(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& input = meta[0].toTensor();
  const auto normalized = static_cast<std::int64_t>(meta[1].toDimVector().size());
  if (normalized == 0 || normalized > input.dim()) return std::nullopt;
  const at::IntArrayRef last =
      input.sizes().slice(static_cast<std::size_t>(input.dim() - normalized));
  if (last != meta[1].toDimVector()) return std::nullopt;
  for (const c10::IValue& scale : {meta[2], meta[3]}) {
    if (is_defined(scale) && scale.toTensor().sizes() != last) return std::nullopt;
  }
  c10::DimVector rows(input.sizes());
  std::fill(rows.end() - normalized, rows.end(), 1);
  const at::ScalarType type = statistics_type(input, meta[2]);
  return {
      {shape_of(input.sizes(), input.scalar_type()), shape_of(rows, type), shape_of(rows, type)}};
}

bool has_elements(const c10::IValue& scale, std::int64_t count) {
  return !is_defined(scale) || (scale.toTensor().dim() == 1 && scale.toTensor().numel() == count);
}

Shapes group_norm(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& input = meta[0].toTensor();
  const std::int64_t batch = meta[3].toInt();
  const std::int64_t channels = meta[4].toInt();
  const std::int64_t groups = meta[6].toInt();
  if (input.numel() != batch * channels * meta[5].toInt() || groups <= 0 ||
      channels % groups != 0 || !has_elements(meta[1], channels) ||
      !has_elements(meta[2], channels)) {
    return std::nullopt;
  }
  const at::ScalarType type = statistics_type(input, meta[1]);
  return {{like(input, input.scalar_type(), input.suggest_memory_format()),
           shape_of({batch, groups}, type), shape_of({batch, groups}, type)}};
}

Shapes batch_norm(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& input = meta[0].toTensor();
  if (input.dim() < 2) return std::nullopt;
  const std::int64_t channels = input.size(1);
  for (std::size_t i = 1; i <= 4; ++i) {
    if (!has_elements(meta[i], channels)) return std::nullopt;
  }
  const at::ScalarType type = statistics_type(input, meta[1]);
  const std::int64_t kept = meta[5].toBool() ? channels : 0;
  return {{like(input, input.scalar_type(), input.suggest_memory_format()), shape_of({kept}, type),
           shape_of({kept}, type)}};
}

Shapes attention(const Stack& operands, const Stack& meta) {
  const at::Tensor& query = meta[0].toTensor();
  const at::Tensor& key = meta[1].toTensor();
  const at::Tensor& value = meta[2].toTensor();
  const bool gqa = operands[7].toBool();
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4 || gqa ||
      query.sizes().slice(0, 2) != key.sizes().slice(0, 2) ||
      key.sizes().slice(0, 3) != value.sizes().slice(0, 3) || query.size(3) != key.size(3)) {
    return std::nullopt;
  }
  if (is_defined(meta[3])) {
    const at::Tensor& mask = meta[3].toTensor();
    const c10::DimVector scores = {query.size(0), query.size(1), query.size(2), key.size(2)};
    if (!at::is_expandable_to(mask.sizes(), scores)) return std::nullopt;
  }
  // The kernel that the CPU takes: the fused one lays its result out as the query is.
  const std::int64_t choice = at::_ops::_fused_sdp_choice::call(
      operands[0].toTensor(), operands[1].toTensor(), operands[2].toTensor(),
      operands[3].toOptional<at::Tensor>(), operands[4].toDouble(), operands[5].toBool(),
      operands[6].toOptional<double>(), gqa);
  constexpr std::int64_t kFused = 1;
  if (choice == kFused) {
    return {{like(query, query.scalar_type(), at::MemoryFormat::Preserve)}};
  }
  return {{shape_of({query.size(0), query.size(1), query.size(2), value.size(3)},
                    query.scalar_type())}};
}

// Into two dimensions; the CPU keeps the memory format.
Shapes pooled(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& input = meta[0].toTensor();
  const auto last = meta[1].toDimVector();
  if (input.dim() != 4 || last.size() != 2) return std::nullopt;
  return {{shape_of({input.size(0), input.size(1), last[0], last[1]}, input.scalar_type(),
                    input.suggest_memory_format())}};
}

// --- others ---

Shapes selected(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& self = meta[0].toTensor();
  const at::Tensor& index = meta[2].toTensor();
  if (self.dim() == 0 || index.dim() > 1) return std::nullopt;
  c10::DimVector sizes(self.sizes());
  sizes[static_cast<std::size_t>(c10::maybe_wrap_dim(meta[1].toInt(), self.dim()))] = index.numel();
  return {{shape_of(sizes, self.scalar_type())}};
}

at::Tensor mean(const Stack& meta) {
  const auto dimensions = meta[1].isNone() ? c10::DimVector() : meta[1].toDimVector();
  return at::_ops::mean_dim::call(meta[0].toTensor(), dimensions, meta[3].toBool(), std::nullopt);
}

Shapes variance(const Stack& /*operands*/, const Stack& meta) {
  const at::ScalarType type = meta[0].toTensor().scalar_type();
  if (!at::isFloatingType(type)) return std::nullopt;
  return {{mean(meta)}};
}

Shapes variance_and_mean(const Stack& operands, const Stack& meta) {
  Shapes shapes = variance(operands, meta);
  if (shapes) shapes->push_back(shapes->front());
  return shapes;
}

// Two dimensions; the padding names the last one first.
Shapes reflection_padded(const Stack& /*operands*/, const Stack& meta) {
  const at::Tensor& input = meta[0].toTensor();
  const auto padding = meta[1].toDimVector();
  if (input.dim() != 4 || padding.size() != 4) return std::nullopt;
  const std::int64_t height = input.size(2);
  const std::int64_t width = input.size(3);
  if (std::max(padding[0], padding[1]) >= width || std::max(padding[2], padding[3]) >= height) {
    return std::nullopt;
  }
  return {{shape_of({input.size(0), input.size(1), height + padding[2] + padding[3],
                     width + padding[0] + padding[1]},
                    input.scalar_type(), input.suggest_memory_format())}};
}

using Rule = Shapes (*)(const Stack& operands, const Stack& meta);

const std::unordered_map<std::string, Rule>& rules() {
  static const auto* const all = new std::unordered_map<std::string, Rule>{
      {"aten::_adaptive_avg_pool2d", &pooled},
      {"aten::_adaptive_avg_pool3d", &shapes_of_adaptive_avg_pool3d},
      {"aten::_convolution", &convolution},
      {"aten::_convolution.deprecated", &convolution},
      {"aten::_prelu_kernel", &of_common_type},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", &shapes_of_fused_attention},
      {"aten::abs.out", &in_out},
      {"aten::angle", &angles},
      {"aten::binary_cross_entropy", &shapes_of_binary_cross_entropy},
      {"aten::channel_shuffle", &shapes_of_channel_shuffle},
      {"aten::complex.out", &in_out},
      {"aten::convolution", &convolution},
      {"aten::flip", &flipped},
      {"aten::floor_divide", &of_common_type},
      {"aten::grid_sampler_2d", &shapes_of_grid_sampler},
      {"aten::grid_sampler_3d", &shapes_of_grid_sampler},
      {"aten::gru.input", &shapes_of_rnn},
      {"aten::gru_cell", &shapes_of_rnn_cell},
      {"aten::hardswish", &of_common_type},
      {"aten::huber_loss", &shapes_of_huber_loss},
      {"aten::index_select", &selected},
      {"aten::isnan", &booleans},
      {"aten::logical_and.out", &in_out},
      {"aten::logical_not.out", &in_out},
      {"aten::logical_or.out", &in_out},
      {"aten::logical_xor.out", &in_out},
      {"aten::lstm.input", &shapes_of_lstm},
      {"aten::lstm_cell", &shapes_of_lstm_cell},
      {"aten::max_pool3d_with_indices", &shapes_of_max_pool3d},
      {"aten::nan_to_num.out", &in_out},
      {"aten::native_batch_norm", &batch_norm},
      {"aten::native_group_norm", &group_norm},
      {"aten::native_layer_norm", &layer_norm},
      {"aten::polar.out", &in_out},
      {"aten::reflection_pad2d", &reflection_padded},
      {"aten::relu", &of_common_type},
      {"aten::rnn_relu.input", &shapes_of_rnn},
      {"aten::rnn_relu_cell", &shapes_of_rnn_cell},
      {"aten::rnn_tanh.input", &shapes_of_rnn},
      {"aten::rnn_tanh_cell", &shapes_of_rnn_cell},
      {"aten::roll", &rolled},
      {"aten::scaled_dot_product_attention", &attention},
      {"aten::std.correction", &variance},
      {"aten::var.correction", &variance},
      {"aten::var_mean.correction", &variance_and_mean},
      {"aten::where.self", &of_common_type},
  };
  return *all;
}

}  // namespace

std::optional<std::vector<at::Tensor>> result_shapes(const c10::OperatorHandle& op,
                                                     const Stack& operands, const Stack& meta) {
  const auto rule = rules().find(c10::toString(op.operator_name()));
  if (rule == rules().end()) return std::nullopt;
  return rule->second(operands, meta);
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
