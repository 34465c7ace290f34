// SPDX-License-Identifier: Apache-2.0
#include "masters.hpp"
#include "pinning_plan.hpp"
#include "tensor_binding.hpp"

#include <offstage/base/bytes.hpp>
#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>

#include <ATen/Context.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorOptions.h>

#include <cstring>
#include <exception>
#include <malloc.h>
#include <string>
#include <string_view>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

/// Sources of this many bytes are freed between two requests to the heap to give back what is free.
constexpr std::int64_t kTrimBytes = 16 * kMiB;

/// Pins the slices of an arena. A refusal is thrown on or noted, as the options ask.
class SlicePinner {
 public:
  /// @param refusal  Why the arena is not in the memory that could be pinned; empty if it is.
  SlicePinner(HostArena& arena, const DeviceContext& context, const StagerOptions& options,
              PinningPlan plan, std::string refusal)
      : arena_(arena),
        context_(context),
        options_(options),
        promise_(std::move(plan.promise)),
        reason_(refusal.empty() && !plan.shortage.empty() ? "budget" : "pageable"),
        pageable_bytes_(plan.pageable_bytes),
        cause_(std::move(plan.shortage)) {
    if (refusal.empty()) return;
    cause_ = std::move(refusal);
    pageable_bytes_ = arena.bytes() - arena.adopted_bytes();
  }

  /// Pins the slices that end in front of chunk `end` and are not pinned yet.
  void pin_up_to(std::size_t end) {
    for (; next_ < arena_.slices().size() && arena_.slices()[next_].end_chunk <= end; ++next_) {
      pin(next_);
    }
  }

  /// One warning for the whole component.
  void report() const {
    if (pageable_bytes_ == 0 || context_.sink() == nullptr) return;
    context_.sink()->on_event({.kind = EventKind::kPinningFailed,
                               .device = context_.device(),
                               .component = options_.name,
                               .reason = reason_,
                               .message = cause_,
                               .bytes = pageable_bytes_});
  }

 private:
  void pin(std::size_t slice) {
    const std::int64_t bytes = arena_.slices()[slice].bytes;
    try {
      arena_.pin(slice, promise_);
    } catch (...) {
      if (is_forced_unwinding()) throw;
      std::string cause = current_exception_text();
      if (options_.strict_pinning) {
        throw HostMemoryError(
            "component '" + options_.name + "': pinning " + std::to_string(bytes) +
            " bytes of host memory failed, and strict pinning was asked for: " + cause);
      }
      if (pageable_bytes_ == 0) cause_ = std::move(cause);
      pageable_bytes_ += bytes;
    }
  }

  HostArena& arena_;
  const DeviceContext& context_;
  const StagerOptions& options_;
  PinnedLedger::Promise promise_;  // What is never pinned goes back with this object.
  std::size_t next_ = 0;
  std::string_view reason_;
  std::int64_t pageable_bytes_;
  std::string cause_;
};

void fill_from_host(const StorageGroup& group, std::byte* master) {
  for (const SourceRange& source : group.sources) {
    std::memcpy(master + source.group_offset,
                static_cast<const std::byte*>(source.storage.data()) + source.begin,
                static_cast<std::size_t>(source.bytes));
  }
}

void fill_from_device(const StorageGroup& group, const at::Tensor& master) {
  for (const SourceRange& source : group.sources) {
    const at::Tensor from = byte_tensor(source.storage).narrow(0, source.begin, source.bytes);
    master.narrow(0, source.group_offset, source.bytes).copy_(from);
  }
}

/// The bytes in front of a group's first tensor are nobody's, but copied along: they get a value.
void clear_lead(const StorageGroup& group, std::byte* master) {
  std::memset(master, 0, static_cast<std::size_t>(group.sources.front().group_offset));
}

}  // namespace

at::Tensor byte_tensor(const c10::Storage& storage) {
  const c10::InferenceMode normal(false);
  c10::Storage shared = storage;
  const auto bytes = static_cast<std::int64_t>(storage.nbytes());
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(shared),
      c10::DispatchKeySet(c10::computeDispatchKey(c10::kByte, c10::kStrided, storage.device())),
      c10::scalarTypeToTypeMeta(c10::kByte));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({bytes});
  return tensor;
}

namespace {

/// Where the chunks of a component come from.
std::shared_ptr<HostMemory> host_memory_for(const DeviceContext& context,
                                            const StagerOptions& options) {
  if (!options.pin_memory) return std::make_shared<PageableHostMemory>();
  if (options.strict_pinning && context.has_streams() && !context.host_memory()->pins()) {
    throw HostMemoryError("component '" + options.name + "': host memory '" +
                          std::string(context.host_memory()->name()) +
                          "' does not pin, and strict pinning was asked for");
  }
  return context.host_memory();
}

/// The planned chunks. If their memory refuses, and it need not be pinned, pageable memory.
/// @param refusal  Then says why, and nothing of the plan is pinned.
c10::intrusive_ptr<HostArena> make_arena(const std::shared_ptr<DeviceContext>& context,
                                         const std::shared_ptr<HostMemory>& memory,
                                         const StagerOptions& options, PinningPlan& plan,
                                         std::string& refusal) {
  auto arena = c10::make_intrusive<HostArena>(context, options.name);
  try {
    arena->add_chunks(memory, plan.chunks, options.alignment);
    return arena;
  } catch (...) {
    if (is_forced_unwinding() || options.strict_pinning || !options.pin_memory || !memory->pins()) {
      throw;
    }
    refusal = current_exception_text();
  }
  plan.promise = {};
  for (NewChunk& chunk : plan.chunks) chunk.pin = false;
  arena->add_chunks(std::make_shared<PageableHostMemory>(), plan.chunks, options.alignment);
  return arena;
}

/// Takes adopted groups into the arena, in the order of their chunks, which is that of the groups.
void adopt_groups(StagingLayout& layout, HostArena& arena) {
  for (StorageGroup& group : layout.groups) {
    if (group.adopted == nullptr) continue;
    std::vector<c10::Storage> sources;
    for (const SourceRange& source : group.sources) sources.push_back(source.storage);
    arena.add_adopted_chunk(group.adopted, group.bytes, std::move(sources));
  }
}

/// All bookkeeping; touches nothing.
Masters make_masters(StagingLayout& layout, c10::intrusive_ptr<HostArena> reserved) {
  Masters masters;
  masters.arena = std::move(reserved);
  HostArena& arena = *masters.arena;
  adopt_groups(layout, arena);
  for (const StorageGroup& group : layout.groups) {
    std::byte* data = group.bytes == 0 ? nullptr : arena.chunk(group.chunk) + group.chunk_offset;
    masters.storages.push_back(arena.make_storage(data, group.bytes));
  }
  for (std::size_t chunk = 0; chunk < layout.chunk_bytes.size(); ++chunk) {
    masters.chunks.push_back(
        byte_tensor(arena.make_storage(arena.chunk(chunk), layout.chunk_bytes[chunk])));
  }
  return masters;
}

bool is_copied(const StorageGroup& group) {
  return group.bytes != 0 && group.adopted == nullptr;
}

/// Sources on a device: copying can fail, and so can pinning. Both come first, with nothing bound.
/// All chunks are pinned if there is any such source.
void fill_from_devices(const StagingLayout& layout, const Masters& masters, SlicePinner& pinner) {
  for (std::size_t index = 0; index < layout.groups.size(); ++index) {
    const StorageGroup& group = layout.groups[index];
    if (!is_copied(group) || group.source_device.is_cpu()) continue;
    pinner.pin_up_to(layout.chunk_bytes.size());
    clear_lead(group, masters.arena->chunk(group.chunk) + group.chunk_offset);
    fill_from_device(group, byte_tensor(masters.storages[index]));
  }
}

/// Sources on the host are copied, bound and freed one by one. Nothing here fails before a tensor
/// is bound, except a strict pinning error, which leaves tensors bound to masters of the same
/// value.
void fill_from_host_and_bind(StagingLayout& layout, const Masters& masters, SlicePinner& pinner) {
  std::int64_t freed = 0;
  for (StorageGroup& group : layout.groups) {
    if (is_copied(group) && group.source_device.is_cpu()) {
      pinner.pin_up_to(group.chunk);  // The chunks before this one are full.
      std::byte* data = masters.arena->chunk(group.chunk) + group.chunk_offset;
      clear_lead(group, data);
      fill_from_host(group, data);
      freed += group.bytes;
    }
    for (const std::size_t member : group.members) {
      bind(layout.tensors[member], masters.storages[layout.tensors[member].group]);
    }
    group.sources.clear();  // The last reference, unless user code holds another.
    if (freed < kTrimBytes) continue;
    ::malloc_trim(0);
    freed = 0;
  }
  pinner.pin_up_to(layout.chunk_bytes.size());
  ::malloc_trim(0);
}

}  // namespace

std::function<bool(const void*)> adoption_probe(const DeviceContext& context,
                                                const StagerOptions& options) {
  if (options.pinned_sources != PinnedSources::kAdopt || !context.has_streams()) return nullptr;
  return [type = context.device().type()](const void* address) {
    return at::globalContext().isPinnedPtr(address, type);
  };
}

Masters build_masters(StagingLayout& layout, const std::shared_ptr<DeviceContext>& context,
                      const StagerOptions& options) {
  const std::shared_ptr<HostMemory> memory = host_memory_for(*context, options);
  PinningPlan plan = make_pinning_plan(layout, *context, *memory, options);
  std::string refusal;
  Masters masters = make_masters(layout, make_arena(context, memory, options, plan, refusal));
  SlicePinner pinner(*masters.arena, *context, options, std::move(plan), std::move(refusal));
  try {
    fill_from_devices(layout, masters, pinner);
    fill_from_host_and_bind(layout, masters, pinner);
  } catch (...) {
    masters.arena->release_ownership();  // Tensors that are bound there may be staged anew.
    throw;
  }
  pinner.report();
  return masters;
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
