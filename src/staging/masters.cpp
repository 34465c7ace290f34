// SPDX-License-Identifier: Apache-2.0
#include "masters.hpp"
#include "tensor_binding.hpp"

#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>

#include <c10/core/InferenceMode.h>
#include <c10/core/TensorOptions.h>

#include <cstring>
#include <exception>
#include <malloc.h>
#include <string>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

/// Pins a chunk. A refusal is thrown on or noted, as the options ask.
class ChunkPinner {
 public:
  /// @param refusal  Why the arena is not in the memory that could be pinned; empty if it is.
  ChunkPinner(HostArena& arena, const DeviceContext& context, const StagerOptions& options,
              std::string refusal)
      : arena_(arena),
        context_(context),
        options_(options),
        refused_bytes_(refusal.empty() ? 0 : arena.bytes()),
        first_cause_(std::move(refusal)) {}

  /// Pins the chunks in front of `end` that are not pinned yet.
  void pin_up_to(std::size_t end) {
    for (; next_ < end; ++next_) {
      pin(next_);
      // Gives the heap memory of sources freed meanwhile back to the system.
      ::malloc_trim(0);
    }
  }

  /// One warning for the whole component.
  void report() const {
    if (refused_bytes_ == 0 || context_.sink() == nullptr) return;
    context_.sink()->on_event({.kind = EventKind::kPinningFailed,
                               .device = context_.device(),
                               .component = options_.name,
                               .reason = "pageable",
                               .message = first_cause_,
                               .bytes = refused_bytes_});
  }

 private:
  void pin(std::size_t chunk) {
    if (!options_.pin_memory) return;
    try {
      arena_.pin(chunk);
    } catch (...) {
      if (is_forced_unwinding()) throw;
      std::string cause = current_exception_text();
      if (options_.strict_pinning) {
        throw HostMemoryError(
            "component '" + options_.name + "': pinning " +
            std::to_string(arena_.chunk_bytes(chunk)) +
            " bytes of host memory failed, and strict pinning was asked for: " + cause);
      }
      if (refused_bytes_ == 0) first_cause_ = std::move(cause);
      refused_bytes_ += arena_.chunk_bytes(chunk);
    }
  }

  HostArena& arena_;
  const DeviceContext& context_;
  const StagerOptions& options_;
  std::size_t next_ = 0;
  std::int64_t refused_bytes_;
  std::string first_cause_;
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

/// The context's host memory. If that refuses, and it need not be pinned, pageable memory.
/// @param refusal  Then says why.
c10::intrusive_ptr<HostArena> make_arena(const StagingLayout& layout,
                                         const std::shared_ptr<DeviceContext>& context,
                                         const StagerOptions& options, std::string& refusal) {
  const auto arena_in = [&](const std::shared_ptr<HostMemory>& memory) {
    return c10::make_intrusive<HostArena>(context, memory, options.name, layout.chunk_bytes,
                                          options.alignment);
  };
  if (!options.pin_memory) return arena_in(std::make_shared<PageableHostMemory>());
  const std::shared_ptr<HostMemory>& memory = context->host_memory();
  if (options.strict_pinning || !memory->pins()) return arena_in(memory);
  try {
    return arena_in(memory);
  } catch (...) {
    if (is_forced_unwinding()) throw;
    refusal = current_exception_text();
  }
  return arena_in(std::make_shared<PageableHostMemory>());
}

/// Reserves the host memory and all bookkeeping, and touches nothing.
Masters reserve_masters(const StagingLayout& layout, const std::shared_ptr<DeviceContext>& context,
                        const StagerOptions& options, std::string& refusal) {
  Masters masters;
  masters.arena = make_arena(layout, context, options, refusal);
  HostArena& arena = *masters.arena;
  for (const StorageGroup& group : layout.groups) {
    std::byte* data = group.bytes == 0 ? nullptr : arena.chunk(group.chunk) + group.chunk_offset;
    masters.storages.push_back(arena.make_storage(data, group.bytes));
  }
  masters.views = make_views(layout, masters.storages);
  for (std::size_t chunk = 0; chunk < layout.chunk_bytes.size(); ++chunk) {
    masters.chunks.push_back(
        byte_tensor(arena.make_storage(arena.chunk(chunk), layout.chunk_bytes[chunk])));
  }

  return masters;
}

/// Sources on a device: copying can fail, and so can pinning. Both come first, with nothing bound.
/// All chunks are pinned if there is any such source.
void fill_from_devices(const StagingLayout& layout, const Masters& masters, ChunkPinner& pinner) {
  for (std::size_t index = 0; index < layout.groups.size(); ++index) {
    const StorageGroup& group = layout.groups[index];
    if (group.bytes == 0 || group.source_device.is_cpu()) continue;
    pinner.pin_up_to(layout.chunk_bytes.size());
    clear_lead(group, masters.arena->chunk(group.chunk) + group.chunk_offset);
    fill_from_device(group, byte_tensor(masters.storages[index]));
  }
}

/// Sources on the host are copied, bound and freed one by one. Nothing here fails before a tensor
/// is bound, except a strict pinning error, which leaves tensors bound to masters of the same
/// value.
void fill_from_host_and_bind(StagingLayout& layout, const Masters& masters, ChunkPinner& pinner) {
  for (StorageGroup& group : layout.groups) {
    if (group.bytes != 0 && group.source_device.is_cpu()) {
      pinner.pin_up_to(group.chunk);  // The chunks before this one are full.
      std::byte* data = masters.arena->chunk(group.chunk) + group.chunk_offset;
      clear_lead(group, data);
      fill_from_host(group, data);
    }
    for (const std::size_t member : group.members) {
      bind(layout.tensors[member], masters.views[member]);
    }
    group.sources.clear();  // The last reference, unless user code holds another.
  }
  pinner.pin_up_to(layout.chunk_bytes.size());
}

}  // namespace

Masters build_masters(StagingLayout& layout, const std::shared_ptr<DeviceContext>& context,
                      const StagerOptions& options) {
  std::string refusal;
  Masters masters = reserve_masters(layout, context, options, refusal);
  ChunkPinner pinner(*masters.arena, *context, options, std::move(refusal));
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
