// SPDX-License-Identifier: Apache-2.0
#include "pinning_plan.hpp"

#include <offstage/base/error.hpp>

#include <algorithm>
#include <numeric>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

std::int64_t pinning_cost(const std::vector<NewChunk>& chunks, const HostMemory& memory) {
  std::int64_t sum = 0;
  if (memory.slice_bytes_max() > 0) {
    for (const auto& slice : place_chunks(chunks, memory.slice_bytes_max()).slices) {
      sum += memory.taken_bytes(slice.bytes);
    }
    return sum;
  }
  for (const NewChunk& chunk : chunks) sum += chunk.pin ? memory.taken_bytes(chunk.bytes) : 0;
  return sum;
}

std::int64_t choose_largest(std::vector<NewChunk>& chunks, const HostMemory& memory,
                            std::int64_t allowed) {
  std::vector<std::size_t> order(chunks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return chunks[a].bytes > chunks[b].bytes; });
  std::int64_t left = allowed;
  for (NewChunk& chunk : chunks) chunk.pin = false;
  for (const std::size_t index : order) {
    // Apart from the others it takes this; beside them in one slice it may take less.
    const std::int64_t cost = memory.taken_bytes(chunks[index].bytes);
    chunks[index].pin = cost <= left;
    if (chunks[index].pin) left -= cost;
  }
  return pinning_cost(chunks, memory);
}

std::int64_t released_bytes(const StagingLayout& layout) {
  std::int64_t sum = 0;
  for (const StorageGroup& group : layout.groups) {
    if (group.sources.size() != 1 || group.adopted != nullptr) continue;
    const c10::Storage& storage = group.sources.front().storage;
    const bool is_only_ours = storage.use_count() == group.members.size() + 1;
    // Without an allocator it is a mapping or a window on memory of others.
    if (group.source_device.is_cpu() && is_only_ours && storage.allocator() != nullptr) {
      sum += static_cast<std::int64_t>(storage.nbytes());
    }
  }
  return sum;
}

PinningPlan make_pinning_plan(const StagingLayout& layout, const DeviceContext& context,
                              const HostMemory& memory, const StagerOptions& options) {
  PinningPlan plan;
  std::vector<bool> is_adopted(layout.chunk_bytes.size());
  for (const StorageGroup& group : layout.groups) {
    if (group.adopted != nullptr) is_adopted[group.chunk] = true;
  }
  const bool pins = options.pin_memory && memory.pins();
  for (std::size_t index = 0; index < layout.chunk_bytes.size(); ++index) {
    if (!is_adopted[index]) plan.chunks.push_back({layout.chunk_bytes[index], pins});
  }
  if (!pins) return plan;

  const std::int64_t needed = pinning_cost(plan.chunks, memory);
  HostBudgetOptions added{.bound_by_memlock = memory.bound_by_memlock()};
  if (options.pinned_budget.options() != nullptr) added.released_bytes = released_bytes(layout);
  const auto choose = [&](const PinnedLedger::Allowance& allowance) {
    if (needed <= allowance.bytes) return needed;
    std::string shortage = "pinning takes " + std::to_string(needed) + " bytes, allowed are " +
                           std::to_string(allowance.bytes) + " (" + allowance.reason + ")";
    if (options.strict_pinning) {
      throw HostMemoryError("component '" + options.name + "': " + shortage +
                            ", and strict pinning was asked for");
    }
    plan.shortage = std::move(shortage);
    return choose_largest(plan.chunks, memory, allowance.bytes);
  };
  plan.promise = context.pinned_ledger().set_aside(options.pinned_budget, added, choose);
  for (const NewChunk& chunk : plan.chunks) plan.pageable_bytes += chunk.pin ? 0 : chunk.bytes;
  return plan;
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
