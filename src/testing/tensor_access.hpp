// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Tensors as the race checker sees them.

#include "access.hpp"

#include <offstage/base/config.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

enum class Use : std::uint8_t { kRead, kWrite, kReadAndWrite };

/// Adds the bytes of a tensor on the device, or in pinned host memory.
void add_access(Accesses& accesses, const at::Tensor& tensor, Use use);

/// Adds plain bytes on the device.
void add_access(Accesses& accesses, const void* data, std::int64_t bytes, Use use);

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
