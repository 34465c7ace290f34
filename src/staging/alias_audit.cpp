// SPDX-License-Identifier: Apache-2.0
#include "alias_audit.hpp"

#include <cstddef>
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
/// views. A base is not reachable but through its view.
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
      const auto holders = static_cast<std::size_t>(source.storage.use_count());
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
