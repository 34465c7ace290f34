// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What an operation reads, writes and computes, told from its schema and its arguments.

#include "access.hpp"

#include <offstage/base/config.hpp>
#include <offstage/testing/cost_model.hpp>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// The device memory that an operation uses. Results that are no arguments are not in it.
///
/// Written arguments are those that the schema says are written, and those of a table of schemas
/// that do not say it (running statistics of a batch norm in training). They are read as well,
/// unless they are `out` arguments or the operation is known to overwrite (`fill_`, ...).
[[nodiscard]] Accesses accesses_of(const c10::FunctionSchema& schema,
                                   const std::vector<c10::IValue>& arguments);

/// Bytes of the tensor arguments, and the floating-point operations of matrix products,
/// convolutions and attention.
[[nodiscard]] KernelWork work_of(const c10::FunctionSchema& schema,
                                 const std::vector<c10::IValue>& arguments);

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
