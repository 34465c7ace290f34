// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Device memory as the workers see it.

#include <offstage/base/config.hpp>

#include <ATen/core/Tensor.h>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// A CPU tensor over the bytes of `tensor`, which it does not keep alive: for use on a worker,
/// where the allocator's stream order keeps the memory. Sizes, strides, type, conjugate and
/// negative bits are those of `tensor`.
[[nodiscard]] at::Tensor alias_on_cpu(const at::Tensor& tensor);

/// Bytes from the first to the last element of `tensor`, gaps included.
[[nodiscard]] std::int64_t hull_bytes(const at::Tensor& tensor);

/// `to.copy_(from)` for CPU tensors on a worker; one memcpy where the layouts are the same.
void copy_on_worker(const at::Tensor& to, const at::Tensor& from);

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
