// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Which chunks are pinned: decided beforehand, from what the budget allows.

#include "host_arena.hpp"
#include "storage_group.hpp"

#include <offstage/base/config.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/device/pinned_ledger.hpp>
#include <offstage/staging/pinned_module_stager.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// What a stager will do with the chunks that are its own (adopted ones are not).
struct PinningPlan {
  std::vector<NewChunk> chunks;
  PinnedLedger::Promise promise;    ///< What pinning them takes, set aside.
  std::int64_t pageable_bytes = 0;  ///< Of the chunks that the budget leaves out.
  std::string shortage;             ///< Why; empty if it leaves out none.
};

/// Decides, and sets aside what will be pinned. All chunks if the budget is enough; otherwise the
/// largest, then the next largest that still fits, and so on.
/// @param memory  Where the chunks will come from.
/// @throws HostMemoryError naming the needed and the allowed bytes, if the budget is not enough for
///                         all and pinning is strict; or if it cannot be read.
[[nodiscard]] PinningPlan make_pinning_plan(const StagingLayout& layout,
                                            const DeviceContext& context, const HostMemory& memory,
                                            const StagerOptions& options);

/// Marks chunks to be pinned, the largest first, as long as they fit.
/// @returns the bytes that pinning them takes, at most `allowed`.
std::int64_t choose_largest(std::vector<NewChunk>& chunks, const HostMemory& memory,
                            std::int64_t allowed);

/// What pinning the marked chunks takes, in bytes.
[[nodiscard]] std::int64_t pinning_cost(const std::vector<NewChunk>& chunks,
                                        const HostMemory& memory);

/// The host memory that goes back to the system when the groups' sources are let go: whole storages
/// of the heap that nobody else holds. Adopted groups keep theirs.
[[nodiscard]] std::int64_t released_bytes(const StagingLayout& layout);

}  // namespace detail
OFFSTAGE_NAMESPACE_END
