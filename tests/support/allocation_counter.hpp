// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace offstage {

/// How often the calling thread has called operator new. Link allocation_counter.cpp.
[[nodiscard]] std::int64_t allocations_of_this_thread() noexcept;

}  // namespace offstage
