// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What an operation will return, known before it runs. Heavy: for the units that hold kernels.

#include <offstage/base/config.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// The results as tensors without memory, for operations that LibTorch has no shape function for.
/// Nothing is computed, and no element is read.
///
/// @param operands  The arguments as the CPU kernel will see them.
/// @param meta      The same arguments as meta tensors.
/// @return nothing for an operation that is not known here, or whose results depend on elements.
/// @throws c10::Error for some wrong arguments.
[[nodiscard]] std::optional<std::vector<at::Tensor>> result_shapes(
    const c10::OperatorHandle& op, const torch::jit::Stack& operands,
    const torch::jit::Stack& meta);

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
