// SPDX-License-Identifier: Apache-2.0
#include "alias_audit.hpp"

#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.itemsize());
}

/// The paths of the tensors at these places, with commas.
std::string join_paths(const StagingLayout& layout, const std::vector<std::size_t>& members) {
  std::string paths;
  for (const std::size_t member : members) {
    paths += (paths.empty() ? "" : ", ") + layout.tensors[member].path;
  }
  return paths;
}

using Holders = std::unordered_map<const c10::StorageImpl*, std::size_t>;

/// For each storage: the listed tensors that use it, and the bases that autograd keeps of listed
/// views.
Holders count_known_holders(const StagingLayout& layout) {
  Holders holders;
  std::unordered_set<const c10::TensorImpl*> counted;
  for (const TensorRecord& record : layout.tensors) {
    counted.insert(record.tensor.unsafeGetTensorImpl());
    ++holders[record.tensor.storage().unsafeGetStorageImpl()];
  }
  for (const TensorRecord& record : layout.tensors) {
    if (!record.tensor.is_view()) continue;
    const at::TensorBase& base = record.tensor._base();
    if (counted.insert(base.unsafeGetTensorImpl()).second) {
      ++holders[base.storage().unsafeGetStorageImpl()];
    }
  }
  return holders;
}

/// How often autograd's view metadata of a view names its base; nothing where that cannot be told:
/// a view that no strides describe (`view_as_real`, `conj`) keeps functions that hold tensors too.
std::optional<std::size_t> references_to_base(const at::Tensor& view) {
  const auto* const meta = torch::autograd::impl::get_view_autograd_meta(view);
  if (meta == nullptr) return 0;
  if (meta->has_bw_view() && meta->get_backward_view().has_view_fn()) return std::nullopt;
  return (meta->has_bw_view() ? 1U : 0U) +
         (meta->has_fw_view() && !meta->shared_view_info() ? 1U : 0U);
}

/// True if a base of listed views in the group is not listed, and held by more than those views: a
/// base that nobody else holds is not reachable but through them.
bool has_held_base(const StagingLayout& layout, const StorageGroup& group) {
  std::unordered_set<const c10::TensorImpl*> listed;
  std::unordered_map<const c10::TensorImpl*, std::size_t> references;
  for (const std::size_t member : group.members) {
    const at::Tensor& tensor = layout.tensors[member].tensor;
    listed.insert(tensor.unsafeGetTensorImpl());
    if (!tensor.is_view()) continue;
    const auto of_view = references_to_base(tensor);
    if (!of_view) return false;
    references[tensor._base().unsafeGetTensorImpl()] += *of_view;
  }
  for (const std::size_t member : group.members) {
    const at::Tensor& tensor = layout.tensors[member].tensor;
    if (!tensor.is_view()) continue;
    const at::TensorBase& base = tensor._base();
    if (listed.contains(base.unsafeGetTensorImpl())) continue;
    if (base.use_count() > references.at(base.unsafeGetTensorImpl())) return true;
  }
  return false;
}

}  // namespace

AuditReport audit_aliases(const StagingLayout& layout) {
  AuditReport report;
  const auto listed = count_known_holders(layout);
  for (const TensorRecord& record : layout.tensors) {
    for (const std::string& other : record.other_paths) {
      report.add({AuditKind::kTiedTensor, other, "the same tensor as '" + record.path + "'",
                  bytes_of(record.tensor)});
    }
  }
  for (const StorageGroup& group : layout.groups) {
    if (group.bytes == 0) continue;
    if (group.members.size() > 1) {
      report.add({AuditKind::kTiedTensor, layout.tensors[group.members.front()].path,
                  "shares memory with " +
                      join_paths(layout, {group.members.begin() + 1, group.members.end()}),
                  group.bytes});
    }
    for (const SourceRange& source : group.sources) {
      const std::size_t known =
          listed.at(source.storage.unsafeGetStorageImpl()) + 1;  // And source.
      auto holders = static_cast<std::size_t>(source.storage.use_count());
      if (holders == known && has_held_base(layout, group)) ++holders;
      if (holders <= known) continue;
      report.add({AuditKind::kUnmanagedAlias, join_paths(layout, group.members),
                  std::to_string(holders - known) +
                      " more tensors or storages that are not listed hold the same memory; they "
                      "will keep the old copy. List them, or make them anew after staging",
                  source.bytes});
    }
  }
  return report;
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
