// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Finds the tensors that a module computes with and that nobody listed.

#include <offstage/base/config.hpp>
#include <offstage/staging/audit_report.hpp>
#include <offstage/staging/named_tensor.hpp>

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN

/// Runs `body` once and looks at the operands of every operation that it calls: what is neither
/// listed, nor an input, nor computed in the run itself, is a tensor that staging will not move,
/// such as a plain tensor member of a module (`AuditKind::kUnmanagedTensor`, once for each, named
/// by the operation that used it, with its dtype, sizes and device).
///
/// Views of listed tensors, scalars, and tensors without elements are no findings. What operations
/// of other threads use is not seen.
///
/// @param managed  What is going to be staged.
/// @param inputs   What the body is given from outside. Inputs that the body makes itself need not
///                 be listed.
/// @param body     Usually one forward pass, on the host.
/// @throws what the body throws.
[[nodiscard]] AuditReport audit_trial_run(const std::vector<NamedTensor>& managed,
                                          const std::vector<at::Tensor>& inputs,
                                          const std::function<void()>& body);

OFFSTAGE_NAMESPACE_END
