// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Refuses tensors that cannot be moved by re-binding them.

#include <offstage/base/config.hpp>

#include <ATen/core/Tensor.h>

#include <string>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// @throws StagingError that names `component` and `path` and says why the tensor cannot be staged:
///         undefined, meta, sparse or otherwise not strided, quantized, a subclass, part of an
///         autograd graph, with a gradient, without readable memory, or staged already.
void check_stageable(const at::Tensor& tensor, const std::string& path,
                     const std::string& component);

/// Bytes from the first to behind the last element that the tensor can reach; 0 if it is empty.
[[nodiscard]] std::int64_t spanned_bytes(const at::Tensor& tensor);

/// False if it is certain that no two elements share memory: each stride passes over all that the
/// smaller ones reach.
[[nodiscard]] bool may_overlap_itself(c10::IntArrayRef sizes, c10::IntArrayRef strides);

}  // namespace detail
OFFSTAGE_NAMESPACE_END
