// SPDX-License-Identifier: Apache-2.0
#include "checksum.hpp"

#define XXH_INLINE_ALL  // Nothing to link, for us or for our users.
#include <xxhash.h>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
