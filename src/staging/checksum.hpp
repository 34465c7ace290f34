// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Tells whether bytes have changed.

#include <offstage/base/config.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// 64 bits of XXH3: finds accidents, not attacks. About the speed of memory.
[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace detail
OFFSTAGE_NAMESPACE_END
