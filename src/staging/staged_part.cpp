// SPDX-License-Identifier: Apache-2.0
#include "checksum.hpp"
#include "staged_part.hpp"
#include "tensor_binding.hpp"
#include "tensor_checks.hpp"

#include <offstage/base/error.hpp>

#include <ATen/ops/empty_ops.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

std::uint64_t checksum_of(const c10::Storage& master) {
  return checksum({static_cast<const std::byte*>(master.data()), master.nbytes()});
}

std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0
                               : tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

}  // namespace

StagedPart::StagedPart(std::string name, StagingLayout layout,
                       const std::shared_ptr<DeviceContext>& context, const StagerOptions& options,
                       StagerCounters& counters)
    : name_(std::move(name)),
      context_(context),
      options_(options),
      counters_(counters),
      layout_(std::move(layout)),
      bytes_(layout_.padded_bytes()),
      masters_(build_masters(layout_, context_, options_)) {
  if (!options_.checksum_masters) return;
  checksums_.resize(layout_.groups.size());
  take_checksums();
}

StagedPart::~StagedPart() {
  masters_.arena->release_ownership();
}

void StagedPart::check_bound_to_masters() const {
  for (const TensorRecord& record : layout_.tensors) {
    if (is_bound_to(record, masters_.storages[record.group])) continue;
    throw StateError("component '" + options_.name + "': load: tensor '" + record.path +
                     "' was replaced, moved or reshaped since it was staged");
  }
}

StagedPart::Prepared StagedPart::prepare(Pieces pieces) {
  Prepared prepared{c10::make_intrusive<DeviceSlab>(context_->device(), options_.name), {}};
  DeviceSlab& slab = *prepared.slab;
  make_device_storages(slab);
  prepared.places.reserve(layout_.groups.size());
  if (pieces == Pieces::kStorages) {
    for (std::size_t index = 0; index < layout_.groups.size(); ++index) {
      const std::int64_t bytes = layout_.groups[index].bytes;
      prepared.places.push_back(bytes == 0 ? nullptr : slab.allocate(bytes));
      if (bytes == 0) continue;
      ++counters_.allocations;
      copy_to_device(byte_tensor(slab.make_storage(prepared.places.back(), bytes)),
                     byte_tensor(masters_.storages[index]));
    }
    return prepared;
  }
  std::vector<std::byte*> chunks;
  for (const std::int64_t bytes : layout_.chunk_bytes) {
    chunks.push_back(slab.allocate(bytes));
    ++counters_.allocations;
  }
  for (std::size_t index = 0; index < chunks.size(); ++index) {
    copy_to_device(byte_tensor(slab.make_storage(chunks[index], layout_.chunk_bytes[index])),
                   masters_.chunks[index]);
  }
  for (const StorageGroup& group : layout_.groups) {
    prepared.places.push_back(group.bytes == 0 ? nullptr
                                               : chunks[group.chunk] + group.chunk_offset);
  }
  return prepared;
}

/// Making them is most of what a load would cost the host.
void StagedPart::make_device_storages(DeviceSlab& slab) {
  device_storages_.resize(layout_.groups.size());
  for (std::size_t index = 0; index < layout_.groups.size(); ++index) {
    if (device_storages_[index]) continue;
    // LibTorch would ask an allocator if there were no pointer at all.
    device_storages_[index] = slab.make_storage(nullptr, layout_.groups[index].bytes);
    device_storages_[index].set_data_ptr_noswap(c10::DataPtr(nullptr, context_->device()));
  }
  versions_.reserve(layout_.tensors.size());  // bind_to_device fills it and must not fail.
}

void StagedPart::copy_to_device(const at::Tensor& to, const at::Tensor& from) {
  masters_.arena->note_copies_queued();  // First: a failing copy may have been queued all the same.
  to.copy_(from, /*non_blocking=*/true);
  ++counters_.copies;
}

void StagedPart::bind_to_device(Prepared prepared) noexcept {
  slab_ = std::move(prepared.slab);
  for (std::size_t index = 0; index < prepared.places.size(); ++index) {
    device_storages_[index].set_data_ptr_noswap(slab_->make_pointer(prepared.places[index]));
  }
  for (const TensorRecord& record : layout_.tensors) bind(record, device_storages_[record.group]);
  note_versions();
}

std::vector<std::size_t> StagedPart::bind_to_masters() noexcept {
  std::vector<std::size_t> replaced;
  for (std::size_t index = 0; index < layout_.tensors.size(); ++index) {
    const TensorRecord& record = layout_.tensors[index];
    if (is_bound_to(record, device_storages_[record.group])) {
      bind(record, masters_.storages[record.group]);
      // Its value is the old one again: a graph that has saved the new one must notice.
      if (!versions_.empty() && version_of(record.tensor) != versions_[index]) {
        record.tensor.unsafeGetTensorImpl()->bump_version();
      }
    } else {
      replaced.push_back(index);
    }
  }
  return replaced;
}

void StagedPart::note_versions() {
  versions_.clear();
  if (options_.edits == EditPolicy::kIgnore && !c10::GradMode::is_enabled()) return;
  for (const TensorRecord& record : layout_.tensors) versions_.push_back(version_of(record.tensor));
}

void StagedPart::note_versions(const std::vector<std::size_t>& groups) {
  if (versions_.empty()) return;
  for (const std::size_t group : groups) {
    for (const std::size_t member : layout_.groups[group].members) {
      versions_[member] = version_of(layout_.tensors[member].tensor);
    }
  }
}

bool StagedPart::is_ours(std::size_t tensor) const noexcept {
  const TensorRecord& record = layout_.tensors[tensor];
  return is_bound_to(record, (is_loaded() ? device_storages_ : masters_.storages)[record.group]);
}

void StagedPart::raise_versions(std::size_t group) noexcept {
  for (const std::size_t member : layout_.groups[group].members) {
    const at::Tensor& tensor = layout_.tensors[member].tensor;
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

StagedPart::Edits StagedPart::edits() const {
  Edits edits;
  for (std::size_t group = 0; group < layout_.groups.size(); ++group) {
    const StorageGroup& members = layout_.groups[group];
    if (members.bytes == 0) continue;
    const auto any = [&members](auto&& is) {
      return std::any_of(members.members.begin(), members.members.end(), is);
    };
    if (any([this](std::size_t member) {
          return version_of(layout_.tensors[member].tensor) != versions_[member];
        })) {
      edits.groups.push_back(group);
    } else if (any([this](std::size_t member) {
                 const TensorRecord& record = layout_.tensors[member];
                 return record.is_inference || record.is_buffer;
               })) {
      edits.unknown.push_back(group);
    }
  }
  return edits;
}

bool StagedPart::differs_from_master(std::size_t group) const {
  const at::Tensor master = byte_tensor(masters_.storages[group]);
  const at::Tensor device = byte_tensor(device_storages_[group]);
  const c10::InferenceMode normal(false);
  const at::Tensor copy =
      at::_ops::empty_memory_format::call(master.sym_sizes(), c10::kByte, std::nullopt,
                                          c10::Device(c10::kCPU), std::nullopt, std::nullopt);
  copy.copy_(device);
  return std::memcmp(copy.const_data_ptr(), master.const_data_ptr(),
                     static_cast<std::size_t>(master.numel())) != 0;
}

void StagedPart::copy_back(const std::vector<std::size_t>& groups) {
  for (const std::size_t group : groups) {
    masters_.arena->note_copies_queued();
    byte_tensor(masters_.storages[group])
        .copy_(byte_tensor(device_storages_[group]), /*non_blocking=*/true);
    ++counters_.copies_back;
  }
}

void StagedPart::write_masters(const NewValues& changes) {
  const std::vector<std::size_t> groups = groups_of(changes.tensors);
  const std::vector<std::size_t> corrupted = corrupted_of(groups);
  forget_checksums(groups);
  // The versions count these writes too, also those of tensors that only share the counter.
  std::vector<std::size_t> unedited =
      versions_.empty() ? std::vector<std::size_t>() : changes.tensors;
  for (const std::size_t group : groups) {
    for (const std::size_t member : layout_.groups[group].members) {
      if (!versions_.empty() && version_of(layout_.tensors[member].tensor) == versions_[member])
        unedited.push_back(member);
    }
  }
  for (std::size_t index = 0; index < changes.tensors.size(); ++index) {
    const TensorRecord& record = layout_.tensors[changes.tensors[index]];
    const c10::InferenceMode mode(record.is_inference);
    const c10::AutoGradMode no_grad(false);
    make_view(record, masters_.storages[record.group]).copy_(changes.values[index]);
    if (!record.tensor.is_inference()) record.tensor.unsafeGetTensorImpl()->bump_version();
  }
  for (const std::size_t member : unedited) {
    versions_[member] = version_of(layout_.tensors[member].tensor);
  }
  take_checksums();
  // What somebody else wrote beside the new values is still there, and stays a finding.
  for (const std::size_t group : corrupted) checksums_[group] = ~*checksums_[group];
}

void StagedPart::copy_again(const std::vector<std::size_t>& tensors) {
  struct Run {
    std::size_t group;
    std::int64_t begin;
    std::int64_t end;
  };
  std::vector<Run> runs;
  for (const std::size_t index : tensors) {
    const TensorRecord& record = layout_.tensors[index];
    const at::Tensor master = make_view(record, masters_.storages[record.group]);
    if (master.numel() == 0) continue;
    const std::int64_t begin = record.storage_offset * static_cast<std::int64_t>(master.itemsize());
    runs.push_back({record.group, begin, begin + spanned_bytes(master)});
  }
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
    return std::tie(a.group, a.begin) < std::tie(b.group, b.begin);
  });
  for (std::size_t first = 0; first < runs.size();) {
    Run run = runs[first++];
    while (first < runs.size() && runs[first].group == run.group && runs[first].begin <= run.end) {
      run.end = std::max(run.end, runs[first++].end);
    }
    const auto part = [&run](const c10::Storage& storage) {
      return byte_tensor(storage).narrow(0, run.begin, run.end - run.begin);
    };
    copy_to_device(part(device_storages_[run.group]), part(masters_.storages[run.group]));
  }
}

std::vector<std::size_t> StagedPart::groups_of(const std::vector<std::size_t>& tensors) const {
  std::vector<std::size_t> groups;
  groups.reserve(tensors.size());
  for (const std::size_t tensor : tensors) groups.push_back(layout_.tensors[tensor].group);
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

bool StagedPart::is_in_masters(const at::Tensor& tensor) const {
  if (!tensor.is_cpu() || tensor.numel() == 0) return false;
  const c10::Storage& storage = tensor.storage();
  const auto* const begin = static_cast<const std::byte*>(storage.data());
  const auto* const end = begin + storage.nbytes();
  return std::any_of(masters_.storages.begin(), masters_.storages.end(), [=](const auto& master) {
    const auto* const first = static_cast<const std::byte*>(master.data());
    return begin < first + master.nbytes() && first < end;
  });
}

void StagedPart::forget_checksums(const std::vector<std::size_t>& groups) noexcept {
  if (checksums_.empty()) return;
  for (const std::size_t group : groups) checksums_[group].reset();
}

void StagedPart::take_checksums() noexcept {
  for (std::size_t group = 0; group < checksums_.size(); ++group) {
    if (!checksums_[group]) checksums_[group] = checksum_of(masters_.storages[group]);
  }
}

std::vector<std::size_t> StagedPart::corrupted_groups() {
  if (std::find(checksums_.begin(), checksums_.end(), std::nullopt) != checksums_.end()) {
    arena().wait_copies();
    take_checksums();
  }
  std::vector<std::size_t> all(checksums_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return corrupted_of(all);
}

std::vector<std::size_t> StagedPart::corrupted_of(const std::vector<std::size_t>& groups) const {
  std::vector<std::size_t> corrupted;
  if (checksums_.empty()) return corrupted;
  for (const std::size_t group : groups) {
    const std::optional<std::uint64_t>& known = checksums_[group];
    if (known && known != checksum_of(masters_.storages[group])) corrupted.push_back(group);
  }
  return corrupted;
}

std::string StagedPart::paths_of(std::size_t group) const {
  std::string paths;
  for (const std::size_t member : layout_.groups[group].members) {
    if (!paths.empty()) paths += ", ";
    paths += layout_.tensors[member].path;
  }
  return paths;
}

std::string StagedPart::paths_still_referenced() const {
  std::string paths;
  for (std::size_t group = 0; group < layout_.groups.size(); ++group) {
    if (device_storages_[group].use_count() == 1) continue;
    if (!paths.empty()) paths += ", ";
    paths += paths_of(group);
  }
  return paths;
}

c10::intrusive_ptr<DeviceSlab> StagedPart::take_slab() noexcept {
  for (c10::Storage& storage : device_storages_) {
    if (storage.use_count() == 1) {
      storage.set_data_ptr_noswap(c10::DataPtr(nullptr, context_->device()));
    } else {
      storage = c10::Storage();  // Somebody else's now.
    }
  }
  slab_->release_ownership();
  return std::move(slab_);
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
