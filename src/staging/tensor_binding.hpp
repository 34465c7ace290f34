// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Points tensors of user code at other memory.

#include "storage_group.hpp"

#include <offstage/base/config.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// A new tensor over the record's place in its group's storage, with the record's metadata; an
/// inference tensor if the record's is one.
[[nodiscard]] at::Tensor make_view(const TensorRecord& record, const c10::Storage& storage);

/// Makes `record.tensor` use its group's `storage`, on whatever device that is. Everything else of
/// the tensor stays, and every handle to it sees the change. A graph of autograd that was made
/// before may not run backward any more; one made afterwards does.
///
/// `Tensor::set_data` is no alternative: it refuses to go between the CPU and a PrivateUse1 device.
/// And `shallow_copy_from`, which would do, copies sizes and strides that do not change, and costs
/// four times as much.
/// @pre The tensor has the record's metadata (`is_bound_to` was true for some storage): nothing is
///      checked here, so that a list of tensors can be re-bound without failing in the middle.
void bind(const TensorRecord& record, const c10::Storage& storage) noexcept;

/// True if the tensor still has the record's metadata and lies in `storage`: nobody replaced, moved
/// or reshaped it since it was bound there.
[[nodiscard]] bool is_bound_to(const TensorRecord& record, const c10::Storage& storage) noexcept;

}  // namespace detail
OFFSTAGE_NAMESPACE_END
