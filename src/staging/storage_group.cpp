// SPDX-License-Identifier: Apache-2.0
#include "host_arena.hpp"
#include "storage_group.hpp"
#include "tensor_checks.hpp"

#include <offstage/base/bytes.hpp>
#include <offstage/base/error.hpp>

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

using Address = std::uintptr_t;

/// The bytes of one storage that managed tensors cover, as addresses.
struct Hull {
  c10::Storage storage;
  Address begin = 0;
  Address end = 0;
  std::vector<std::size_t> members;  // Tensor records, in order.
};

Address base_of(const c10::Storage& storage) {
  return reinterpret_cast<Address>(storage.data());
}

Address address_of(const at::Tensor& tensor) {
  return base_of(tensor.storage()) +
         static_cast<Address>(tensor.storage_offset()) * static_cast<Address>(tensor.itemsize());
}

TensorRecord make_record(NamedTensor named) {
  const at::Tensor& tensor = named.tensor;
  TensorRecord record;
  record.path = std::move(named.path);
  record.storage_offset = tensor.storage_offset();
  record.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  record.strides.assign(tensor.strides().begin(), tensor.strides().end());
  record.dtype = tensor.scalar_type();
  record.is_conj = tensor.is_conj();
  record.is_neg = tensor.is_neg();
  record.is_inference = tensor.is_inference();
  record.is_buffer = named.is_buffer;
  record.tensor = std::move(named.tensor);
  return record;
}

/// One hull a storage, in the order of its first tensor. Empty tensors have none.
std::vector<Hull> make_hulls(const std::vector<TensorRecord>& records) {
  std::vector<Hull> hulls;
  std::unordered_map<const c10::StorageImpl*, std::size_t> hull_of;
  for (std::size_t index = 0; index < records.size(); ++index) {
    const at::Tensor& tensor = records[index].tensor;
    if (tensor.numel() == 0) continue;
    const Address begin = address_of(tensor);
    const Address end = begin + static_cast<Address>(spanned_bytes(tensor));
    const auto [found, is_new] =
        hull_of.emplace(tensor.storage().unsafeGetStorageImpl(), hulls.size());
    if (is_new) hulls.push_back({tensor.storage(), begin, end, {}});
    Hull& hull = hulls[found->second];
    hull.begin = std::min(hull.begin, begin);
    hull.end = std::max(hull.end, end);
    hull.members.push_back(index);
  }
  return hulls;
}

/// Sorts hulls into sets that overlap in memory. Each set is in address order.
std::vector<std::vector<Hull>> merge_overlapping(std::vector<Hull> hulls) {
  std::sort(hulls.begin(), hulls.end(), [](const Hull& a, const Hull& b) {
    const c10::Device device_a = a.storage.device();
    const c10::Device device_b = b.storage.device();
    return std::tuple(device_a.type(), device_a.index(), a.begin) <
           std::tuple(device_b.type(), device_b.index(), b.begin);
  });
  std::vector<std::vector<Hull>> sets;
  Address end = 0;
  for (Hull& hull : hulls) {
    const bool overlaps = !sets.empty() && hull.begin < end &&
                          sets.back().front().storage.device() == hull.storage.device();
    end = overlaps ? std::max(end, hull.end) : hull.end;
    if (!overlaps) sets.emplace_back();
    sets.back().push_back(std::move(hull));
  }
  return sets;
}

/// Turns one set of overlapping hulls into a group, and tells its tensors where they are in it.
StorageGroup make_group(std::vector<Hull> hulls, std::int64_t alignment,
                        const std::string& component, std::vector<TensorRecord>& records) {
  const Address begin = hulls.front().begin;
  Address end = 0;
  for (const Hull& hull : hulls) end = std::max(end, hull.end);
  // One storage: count from its start, since storages start aligned on a device. Windows on one
  // mapping have no common start: count from address 0.
  const Address anchor = hulls.size() == 1 ? base_of(hulls.front().storage) : 0;
  const auto lead = static_cast<std::int64_t>((begin - anchor) % static_cast<Address>(alignment));

  StorageGroup group;
  group.bytes = lead + static_cast<std::int64_t>(end - begin);
  group.source_device = hulls.front().storage.device();
  for (Hull& hull : hulls) {
    for (const std::size_t member : hull.members) {
      TensorRecord& record = records[member];
      const auto item_bytes = static_cast<std::int64_t>(record.tensor.itemsize());
      const std::int64_t offset =
          lead + static_cast<std::int64_t>(address_of(record.tensor) - begin);
      if (offset % item_bytes != 0) {
        throw StagingError("component '" + component + "': tensor '" + record.path +
                           "' lies at an address that is not a multiple of its item size, " +
                           std::to_string(item_bytes) + " bytes");
      }
      record.storage_offset = offset / item_bytes;
      group.members.push_back(member);
    }
    const auto in_storage = static_cast<std::int64_t>(hull.begin - base_of(hull.storage));
    group.sources.push_back({std::move(hull.storage), in_storage,
                             static_cast<std::int64_t>(hull.end - hull.begin),
                             lead + static_cast<std::int64_t>(hull.begin - begin)});
  }
  std::sort(group.members.begin(), group.members.end());
  return group;
}

/// Finds out whether a group can stay where it is. Both ends are asked for: a range that is pinned
/// in part is somebody's mistake, and must not become a slow load or a failing one.
void adopt_if_pinned(StorageGroup& group, std::int64_t alignment, const std::string& component,
                     const std::string& path, const std::function<bool(const void*)>& is_pinned) {
  if (group.bytes == 0 || !group.source_device.is_cpu()) return;
  const SourceRange& first = group.sources.front();
  const Address hull_begin = base_of(first.storage) + static_cast<Address>(first.begin);
  const Address begin = hull_begin - static_cast<Address>(first.group_offset);
  const auto pinned_at = [&](Address address) {
    return is_pinned(reinterpret_cast<const void*>(address));
  };
  const bool begins_pinned = pinned_at(hull_begin);
  const bool ends_pinned = pinned_at(begin + static_cast<Address>(group.bytes) - 1);
  if (!begins_pinned && !ends_pinned) return;
  const auto refuse = [&](const std::string& why) {
    throw StagingError("component '" + component + "': tensor '" + path +
                       "' lies in pinned memory that cannot be adopted: " + why);
  };
  if (begins_pinned != ends_pinned) refuse("only a part of it is pinned");
  if (begin % static_cast<Address>(alignment) != 0) {
    refuse("its storage does not start at a multiple of " + std::to_string(alignment) + " bytes");
  }
  if (begin < base_of(first.storage) || !pinned_at(begin)) {
    refuse("the " + std::to_string(first.group_offset) +
           " bytes in front of it, which keep its alignment, belong to other memory");
  }
  auto* const data = reinterpret_cast<std::byte*>(begin);
  if (const auto owner = HostArena::adopted_owner(data, group.bytes)) {
    refuse("component '" + *owner + "' has adopted a part of it already");
  }
  group.adopted = data;
}

void lay_out(StagingLayout& layout, std::int64_t alignment, std::int64_t chunk_bytes_max) {
  std::int64_t used = 0;
  for (StorageGroup& group : layout.groups) {
    if (group.bytes == 0 || group.adopted != nullptr) continue;
    const std::int64_t padded = align_up(group.bytes, alignment);
    if (layout.chunk_bytes.empty() || used + padded > chunk_bytes_max) {
      layout.chunk_bytes.push_back(0);
      used = 0;
    }
    group.chunk = layout.chunk_bytes.size() - 1;
    group.chunk_offset = used;
    used += padded;
    layout.chunk_bytes.back() = used;
    layout.group_bytes += group.bytes;
  }
  for (StorageGroup& group : layout.groups) {
    if (group.adopted == nullptr) continue;
    group.chunk = layout.chunk_bytes.size();
    layout.chunk_bytes.push_back(group.bytes);
    layout.group_bytes += group.bytes;
  }
}

}  // namespace

std::int64_t StagingLayout::padded_bytes() const noexcept {
  return std::accumulate(chunk_bytes.begin(), chunk_bytes.end(), std::int64_t{0});
}

StagingLayout make_staging_layout(std::vector<NamedTensor> tensors, const std::string& component,
                                  std::int64_t alignment, std::int64_t chunk_bytes_max,
                                  const std::function<bool(const void*)>& is_pinned) {
  StagingLayout layout;
  std::unordered_map<const c10::TensorImpl*, std::size_t> seen;
  for (NamedTensor& named : tensors) {
    check_stageable(named.tensor, named.path, component);
    const auto [found, is_new] =
        seen.emplace(named.tensor.unsafeGetTensorImpl(), layout.tensors.size());
    if (is_new) {
      layout.tensors.push_back(make_record(std::move(named)));
      continue;
    }
    layout.tensors[found->second].is_buffer |= named.is_buffer;
    if (named.path != layout.tensors[found->second].path) {
      layout.tensors[found->second].other_paths.push_back(std::move(named.path));
    }
  }

  for (std::vector<Hull>& set : merge_overlapping(make_hulls(layout.tensors))) {
    layout.groups.push_back(make_group(std::move(set), alignment, component, layout.tensors));
  }
  for (std::size_t index = 0; index < layout.tensors.size(); ++index) {
    if (layout.tensors[index].tensor.numel() != 0) continue;
    StorageGroup group;
    group.source_device = layout.tensors[index].tensor.device();
    group.members.push_back(index);
    layout.groups.push_back(std::move(group));
  }
  std::sort(layout.groups.begin(), layout.groups.end(),
            [](const StorageGroup& a, const StorageGroup& b) {
              return a.members.front() < b.members.front();
            });
  for (std::size_t index = 0; index < layout.groups.size(); ++index) {
    for (const std::size_t member : layout.groups[index].members) {
      layout.tensors[member].group = index;
    }
    if (is_pinned) {
      adopt_if_pinned(layout.groups[index], alignment, component,
                      layout.tensors[layout.groups[index].members.front()].path, is_pinned);
    }
  }
  lay_out(layout, alignment, chunk_bytes_max);
  return layout;
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
