// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Two other ways to bring a component to a device, really run, to compare their counts with.

#include <offstage/device/device_context.hpp>
#include <offstage/staging/named_tensor.hpp>

#include <vector>

namespace text_to_image {

/// Moves every tensor by a call of its own, as `module.to(device)` does: one allocation and one
/// blocking copy from pageable memory each; then drops them.
void move_by_tensor(const std::vector<offstage::NamedTensor>& tensors,
                    const offstage::DeviceContext& context);

/// Moves every distinct storage by a call of its own: one allocation on the compute stream, one
/// copy on the copy stream from a pinned master, one event for all of them; then waits for the
/// whole device before it drops them. The masters are pinned here.
void move_by_storage(const std::vector<offstage::NamedTensor>& tensors,
                     const offstage::DeviceContext& context);

}  // namespace text_to_image
