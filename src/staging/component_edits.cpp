// SPDX-License-Identifier: Apache-2.0
// What `ComponentMover` does about weights that the body writes on the device.
#include "component_mover.hpp"

#include <offstage/base/error.hpp>

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

bool contains(const std::vector<std::size_t>& groups, std::size_t group) {
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

std::vector<std::size_t> groups_with_bytes(const StagingLayout& layout) {
  std::vector<std::size_t> groups;
  for (std::size_t group = 0; group < layout.groups.size(); ++group) {
    if (layout.groups[group].bytes != 0) groups.push_back(group);
  }
  return groups;
}

}  // namespace

/// What cannot be kept is reported, whatever fails.
/// @param can_copy  The copy stream waits for all users; else nothing is copied or compared.
void ComponentMover::keep_or_report_edits(Parts parts, const std::vector<Groups>& settled,
                                          bool can_copy) {
  if (options_.edits == EditPolicy::kIgnore) return;
  std::exception_ptr failure;
  std::string lost;
  for (std::size_t index = 0; index < parts.size(); ++index) {
    const auto& part = parts[index];
    auto [groups, unknown] = part->edits();
    if (!settled.empty()) {
      std::erase_if(unknown, [&](std::size_t group) { return contains(settled[index], group); });
    }
    if (options_.edits == EditPolicy::kWriteBack || !can_copy) {
      groups.insert(groups.end(), unknown.begin(), unknown.end());
      unknown.clear();
    }
    try {
      if (options_.edits == EditPolicy::kWriteBack) {
        if (can_copy && !groups.empty()) {
          copy_back({&part, 1}, {groups});
          part->note_versions(groups);
          counters_.edits_kept += static_cast<std::int64_t>(groups.size());
          continue;
        }
      } else {
        const c10::StreamGuard copy_stream_is_current(context_->copy_stream());
        for (; !unknown.empty(); unknown.pop_back()) {
          ++counters_.host_waits;
          if (part->differs_from_master(unknown.back())) groups.push_back(unknown.back());
        }
      }
    } catch (...) {
      if (!failure) failure = std::current_exception();
      groups.insert(groups.end(), unknown.begin(), unknown.end());  // Those may be edited too.
    }
    report_lost(*part, groups, lost);
  }
  if (failure) std::rethrow_exception(failure);
  if (options_.edits == EditPolicy::kReject && !lost.empty()) {
    throw StateError("component '" + options_.name +
                     "': offload: written on the device since the "
                     "load, and lost, as the edit policy is to reject: " +
                     lost);
  }
}

/// Adds to `paths` what it reports.
void ComponentMover::report_lost(StagedPart& part, const Groups& groups,
                                 std::string& paths) noexcept {
  for (const std::size_t group : groups) {
    part.raise_versions(group);
    const std::string of_group = part.paths_of(group);
    emit(EventKind::kEditLost, part.layout().groups[group].bytes, of_group);
    paths += (paths.empty() ? "" : ", ") + of_group;
  }
  counters_.edits_lost += static_cast<std::int64_t>(groups.size());
}

/// Waits also if a copy could not be queued: those before it write masters that are read next.
/// @pre the copy stream waits for all users.
void ComponentMover::copy_back(Parts parts, const std::vector<Groups>& groups) {
  std::exception_ptr failure;
  try {
    const c10::StreamGuard copy_stream_is_current(context_->copy_stream());
    for (std::size_t index = 0; index < parts.size(); ++index) {
      parts[index]->copy_back(groups[index]);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  for (std::size_t index = 0; index < parts.size(); ++index) {
    parts[index]->forget_checksums(groups[index]);  // Until it is known what the bytes are.
  }
  try {
    ++counters_.host_waits;
    context_->synchronize(context_->copy_stream());
  } catch (...) {
    if (!failure) failure = std::current_exception();
    std::rethrow_exception(failure);
  }
  for (const auto& part : parts) part->take_checksums();
  if (failure) std::rethrow_exception(failure);
}

void ComponentMover::write_back() {
  if (!is_loaded()) return;
  for (const auto& part : parts_) {
    for (std::size_t index = 0; index < part->layout().tensors.size(); ++index) {
      if (part->is_ours(index)) continue;
      throw StateError("component '" + options_.name + "': write_back: tensor '" +
                       part->layout().tensors[index].path +
                       "' was replaced, moved or reshaped by user code");
    }
  }
  if (const std::exception_ptr not_idle = order_copies_behind_users()) {
    std::rethrow_exception(not_idle);
  }
  std::vector<Groups> groups;
  for (const auto& part : parts_) groups.push_back(groups_with_bytes(part->layout()));
  copy_back(parts_, groups);
  for (const auto& part : parts_) part->note_versions();
}

std::vector<std::string> ComponentMover::corrupted_paths() {
  std::vector<std::string> paths;
  for (const auto& part : parts_) {
    for (const std::size_t group : part->corrupted_groups()) paths.push_back(part->paths_of(group));
  }
  return paths;
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
