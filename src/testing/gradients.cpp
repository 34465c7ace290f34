// SPDX-License-Identifier: Apache-2.0
#include "kernel_library.hpp"
#include "registration.hpp"
#include "tensor_alias.hpp"
#include "value_mapper.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/_scaled_dot_product_attention_math_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/chunk_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/zeros_like_ops.h>
#include <c10/core/GradMode.h>

#include <limits>
#include <optional>
#include <tuple>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

bool wants_gradients(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!c10::GradMode::is_enabled()) return false;
  bool wants = false;
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      wants = wants || (tensor.defined() && tensor.requires_grad());
    });
  }
  return wants;
}

// An operation without a formula for its gradient: taken apart if one is wanted, else the CPU's
// kernel as a whole.
void whole_or_apart(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  if (wants_gradients(op, *stack)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  } else {
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }
}

// As the CPU does it: fused where it can be, and then with the gradient of the fused kernel.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double dropout, bool causal,
                     std::optional<double> scale, bool gqa) {
  const bool masked = mask && mask->defined();
  const std::int64_t choice = at::_ops::_fused_sdp_choice::call(
      alias_on_cpu(query), alias_on_cpu(key), alias_on_cpu(value),
      masked ? std::optional(alias_on_cpu(*mask)) : std::nullopt, dropout, causal, scale, gqa);
  constexpr std::int64_t kFused = 1;
  if (choice != kFused) {
    return std::get<0>(at::_ops::_scaled_dot_product_attention_math::call(
        query, key, value, mask, dropout, causal, std::nullopt, scale, gqa));
  }
  std::optional<at::Tensor> bias = mask;
  if (masked && mask->scalar_type() == at::kBool) {
    bias = at::_ops::zeros_like::call(*mask, query.scalar_type(), std::nullopt, std::nullopt,
                                      std::nullopt, std::nullopt)
               .masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
  }
  return std::get<0>(at::_ops::_scaled_dot_product_flash_attention_for_cpu::call(
      query, key, value, dropout, causal, bias, scale));
}

void whole_or_differentiable_attention(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                       torch::jit::Stack* stack) {
  if (!wants_gradients(op, *stack)) {
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
    return;
  }
  const auto arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  stack->emplace_back(attention(arguments[0].toTensor(), arguments[1].toTensor(),
                                arguments[2].toTensor(), arguments[3].toOptional<at::Tensor>(),
                                arguments[4].toDouble(), arguments[5].toBool(),
                                arguments[6].toOptional<double>(), arguments[7].toBool()));
}

at::Tensor sum(const at::Tensor& left, const at::Tensor& right) {
  return at::_ops::add_Tensor::call(left, right, 1);
}

at::Tensor product(const at::Tensor& left, const at::Tensor& right) {
  return at::_ops::mul_Tensor::call(left, right);
}

at::Tensor with_bias(const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
  return bias && bias->defined() ? sum(gates, *bias) : gates;
}

// LibTorch takes recurrent layers apart into these for a device that is not the CPU. They are made
// of operations that have gradients; what only a backward kernel would need is not kept.
std::tuple<at::Tensor, at::Tensor, at::Tensor> fused_lstm_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  const at::Tensor gates =
      sum(with_bias(input_gates, input_bias), with_bias(hidden_gates, hidden_bias));
  const auto parts = at::_ops::chunk::call(gates, 4, 1);
  const at::Tensor input = at::_ops::sigmoid::call(parts[0]);
  const at::Tensor forget = at::_ops::sigmoid::call(parts[1]);
  const at::Tensor candidate = at::_ops::tanh::call(parts[2]);
  const at::Tensor output = at::_ops::sigmoid::call(parts[3]);
  const at::Tensor cy = sum(product(forget, cx), product(input, candidate));
  return {product(output, at::_ops::tanh::call(cy)), cy, gates};
}

std::tuple<at::Tensor, at::Tensor> fused_gru_cell(const at::Tensor& input_gates,
                                                  const at::Tensor& hidden_gates,
                                                  const at::Tensor& hx,
                                                  const std::optional<at::Tensor>& input_bias,
                                                  const std::optional<at::Tensor>& hidden_bias) {
  const at::Tensor input = with_bias(input_gates, input_bias);
  const auto of_input = at::_ops::chunk::call(input, 3, 1);
  const auto of_hidden = at::_ops::chunk::call(with_bias(hidden_gates, hidden_bias), 3, 1);
  const at::Tensor reset = at::_ops::sigmoid::call(sum(of_input[0], of_hidden[0]));
  const at::Tensor update = at::_ops::sigmoid::call(sum(of_input[1], of_hidden[1]));
  const at::Tensor candidate = at::_ops::tanh::call(sum(of_input[2], product(reset, of_hidden[2])));
  const at::Tensor difference = at::_ops::sub_Tensor::call(hx, candidate, 1);
  return {sum(product(difference, update), candidate), input};
}

}  // namespace

void register_gradients() {
  torch::Library& above = add_library("aten", c10::DispatchKey::AutogradPrivateUse1);
  for (const char* name : {"lstm.input", "lstm.data", "gru.input", "gru.data", "rnn_tanh.input",
                           "rnn_tanh.data", "rnn_relu.input", "rnn_relu.data", "lstm_cell",
                           "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}) {
    above.impl(name, torch::CppFunction::makeFromBoxedFunction<&whole_or_apart>());
  }
  above.impl("scaled_dot_product_attention",
             torch::CppFunction::makeFromBoxedFunction<&whole_or_differentiable_attention>());
  torch::Library& below = add_library("aten");
  for (torch::Library* const library : {&above, &below}) {
    library->impl("_thnn_fused_lstm_cell", &fused_lstm_cell);
    library->impl("_thnn_fused_gru_cell", &fused_gru_cell);
  }
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
