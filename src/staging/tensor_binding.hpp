// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Points tensors of user code at other memory.

#include "storage_group.hpp"

#include <offstage/base/config.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <span>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// A tensor over each record's place in its group's storage, with the record's metadata: what the
/// record's tensor can be bound to. Each is made in the inference mode of its record, since a bound
/// tensor takes over whether it is an inference tensor.
/// @param storages  One for each group.
[[nodiscard]] std::vector<at::Tensor> make_views(const StagingLayout& layout,
                                                 std::span<const c10::Storage> storages);

/// Makes `record.tensor` use the memory of `view`. Identity, requires_grad, leaf-ness, hooks and
/// version counter of the tensor stay; every handle to it sees the change. A graph of autograd that
/// was made before cannot be run backward any more; one made afterwards can.
///
/// `Tensor::set_data` is no alternative: it refuses to go between the CPU and a PrivateUse1 device.
/// @pre `view` was made by `make_views` for this record, and `is_bound_to` was true for it: nothing
///      is checked here, so that a list of tensors can be re-bound without failing in the middle.
void bind(const TensorRecord& record, const at::Tensor& view) noexcept;

/// True if the tensor still has the record's metadata and lies in `storage`: nobody replaced, moved
/// or reshaped it since it was bound there.
[[nodiscard]] bool is_bound_to(const TensorRecord& record, const c10::Storage& storage) noexcept;

}  // namespace detail
OFFSTAGE_NAMESPACE_END
