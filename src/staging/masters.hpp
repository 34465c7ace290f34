// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Builds the masters of a component: the one moment at which its tensors change owner.

#include "host_arena.hpp"
#include "storage_group.hpp"

#include <offstage/base/config.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/staging/pinned_module_stager.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// The host side of a staged component.
struct Masters {
  c10::intrusive_ptr<HostArena> arena;
  std::vector<c10::Storage> storages;  ///< One for each group.
  std::vector<at::Tensor> chunks;      ///< One for each chunk: its bytes, as the source of a copy.
};

/// Tells of a host address whether it is pinned for the device. Null if nothing is to be adopted.
[[nodiscard]] std::function<bool(const void*)> adoption_probe(const DeviceContext& context,
                                                              const StagerOptions& options);

/// Copies every group into host memory, binds the tensors there, frees their old memory, pins.
/// Adopted groups are bound where they are.
///
/// Sources on the host are freed group by group, and what the heap then holds free is given back to
/// the system every now and then: the host memory in use is at most that of all tensors, the
/// largest storage and a few MiB. Sources on a device are freed at the end, since copying them can
/// fail. The layout's groups have no sources afterwards.
/// @throws HostMemoryError as the stager's constructor documents; every tensor has its value and
///         its device.
[[nodiscard]] Masters build_masters(StagingLayout& layout,
                                    const std::shared_ptr<DeviceContext>& context,
                                    const StagerOptions& options);

/// A byte tensor over the whole of `storage`.
[[nodiscard]] at::Tensor byte_tensor(const c10::Storage& storage);

}  // namespace detail
OFFSTAGE_NAMESPACE_END
