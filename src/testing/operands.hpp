// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The arguments of an operation, as they come and as a worker sees them.

#include <offstage/base/config.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

[[nodiscard]] bool is_simulated(const at::Tensor& tensor);

/// True for arguments and results that the schema says are written.
[[nodiscard]] bool is_written(const c10::Argument& argument);

/// The device of an operation.
/// @throws c10::Error if its operands are on several; host scalars are allowed, and what every
/// device takes from the host: indices, and the batch sizes of a packed sequence.
[[nodiscard]] c10::DeviceIndex common_device(const c10::OperatorHandle& op,
                                             const torch::jit::Stack& arguments);

/// Tells the race checker of the operands in pinned memory, which the host reads at the call.
/// @throws RaceError if a queued copy is not done with one and the action is kThrow.
void check_host_operands(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

/// What a worker computes with: device memory as it is, host operands as they are now.
[[nodiscard]] at::Tensor to_operand(const at::Tensor& tensor);

/// The same without memory.
[[nodiscard]] at::Tensor to_meta(const at::Tensor& tensor);

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
