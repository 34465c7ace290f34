// SPDX-License-Identifier: Apache-2.0
// What `ComponentMover` does when tensors get new values, and when tensors come and go.
#include "component_mover.hpp"
#include "tensor_checks.hpp"

#include <offstage/base/error.hpp>

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

ComponentMover::Place ComponentMover::find(const std::string& path) const {
  std::vector<Place> found;
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    const std::vector<TensorRecord>& tensors = parts_[part]->layout().tensors;
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      const auto& others = tensors[tensor].other_paths;
      if (tensors[tensor].path == path ||
          std::find(others.begin(), others.end(), path) != others.end()) {
        found.push_back({part, tensor});
      }
    }
  }
  if (found.size() == 1) return found.front();
  throw InvalidArgument(
      "component '" + options_.name + "': update: " +
      (found.empty() ? "no tensor '" + path + "' is managed"
                     : std::to_string(found.size()) + " tensors are called '" + path + "'"));
}

std::vector<StagedPart::NewValues> ComponentMover::check_values(
    const std::vector<NamedTensor>& values) const {
  std::vector<StagedPart::NewValues> changes(parts_.size());
  for (const NamedTensor& value : values) {
    const Place place = find(value.path);
    const TensorRecord& record = parts_[place.part]->layout().tensors[place.tensor];
    const std::string where =
        "component '" + options_.name + "': update: the value for '" + value.path + "' ";
    if (!value.tensor.defined()) throw InvalidArgument(where + "is undefined");
    if (value.tensor.layout() != at::kStrided || value.tensor.is_meta()) {
      throw InvalidArgument(where + "is " +
                            (value.tensor.is_meta() ? "a meta tensor" : "not strided") +
                            ", expected one with plain values");
    }
    if (value.tensor.sizes() != c10::IntArrayRef(record.sizes)) {
      throw InvalidArgument(where + "has sizes " + c10::str(value.tensor.sizes()) + ", expected " +
                            c10::str(c10::IntArrayRef(record.sizes)));
    }
    if (value.tensor.scalar_type() != record.dtype) {
      throw InvalidArgument(where + "has dtype " + c10::toString(value.tensor.scalar_type()) +
                            ", expected " + c10::toString(record.dtype));
    }
    if (may_overlap_itself(record.sizes, record.strides)) {
      throw InvalidArgument(where +
                            "cannot be written: elements of the tensor share memory; "
                            "update the tensor that it is a view of");
    }
    if (!parts_[place.part]->is_ours(place.tensor)) {
      throw StateError("component '" + options_.name + "': update: tensor '" + value.path +
                       "' was replaced, moved or reshaped by user code");
    }
    if (value.tensor.numel() == 0) continue;  // Nothing to write, and no version to raise.
    StagedPart::NewValues& of_part = changes[place.part];
    if (std::find(of_part.tensors.begin(), of_part.tensors.end(), place.tensor) !=
        of_part.tensors.end()) {
      throw InvalidArgument(where + "is the second for one tensor");
    }
    of_part.tensors.push_back(place.tensor);
    of_part.values.push_back(value.tensor.detach());
  }
  return changes;
}

/// A value on the host that no write of a master changes.
at::Tensor ComponentMover::take_value(const at::Tensor& value) const {
  const bool is_master = std::any_of(parts_.begin(), parts_.end(), [&value](const auto& part) {
    return part->is_in_masters(value);
  });
  return is_master ? value.clone() : value.cpu();
}

void ComponentMover::update(const std::vector<NamedTensor>& values) {
  std::vector<StagedPart::NewValues> changes = check_values(values);
  wait_copies();  // Until nothing reads the masters, and nothing writes them.
  for (StagedPart::NewValues& of_part : changes) {
    for (at::Tensor& value : of_part.values) value = take_value(value);
  }
  if (is_loaded() && options_.edits == EditPolicy::kWriteBack) keep_edits_beside(changes);
  // From here on nothing fails before the masters are written.
  for (std::size_t index = 0; index < changes.size(); ++index) {
    parts_[index]->write_masters(changes[index]);
  }
  if (is_loaded()) update_device(changes);
}

/// Edits of what shares storages with tensors that get new values: the copies of those to the
/// device take the bytes between their elements along.
void ComponentMover::keep_edits_beside(const std::vector<StagedPart::NewValues>& changes) {
  std::vector<Groups> edited(parts_.size());
  std::size_t count = 0;
  for (std::size_t index = 0; index < parts_.size(); ++index) {
    auto [groups, unknown] = parts_[index]->edits();
    groups.insert(groups.end(), unknown.begin(), unknown.end());
    for (const std::size_t group : parts_[index]->groups_of(changes[index].tensors)) {
      if (std::find(groups.begin(), groups.end(), group) != groups.end()) {
        edited[index].push_back(group);
      }
    }
    count += edited[index].size();
  }
  if (count == 0) return;
  if (const std::exception_ptr not_idle = order_copies_behind_users()) {
    std::rethrow_exception(not_idle);
  }
  copy_back(parts_, edited);
  for (std::size_t index = 0; index < parts_.size(); ++index) {
    parts_[index]->note_versions(edited[index]);
  }
  counters_.edits_kept += static_cast<std::int64_t>(count);
}

void ComponentMover::update_device(const std::vector<StagedPart::NewValues>& changes) {
  try {
    if (const std::exception_ptr not_idle = order_copies_behind_users()) {
      std::rethrow_exception(not_idle);
    }
    {
      const c10::StreamGuard copy_stream_is_current(context_->copy_stream());
      for (std::size_t index = 0; index < parts_.size(); ++index) {
        parts_[index]->copy_again(changes[index].tensors);
      }
    }
    record(ready_, context_->copy_stream());
    wait_ready_on_all_users();
  } catch (...) {
    std::vector<Groups> settled;
    for (std::size_t index = 0; index < parts_.size(); ++index) {
      settled.push_back(parts_[index]->groups_of(changes[index].tensors));
    }
    leave_after_failure(parts_, settled);
    throw;
  }
}

void ComponentMover::add(std::string name, StagingLayout layout) {
  parts_.reserve(parts_.size() + 1);
  parts_.push_back(std::make_unique<StagedPart>(std::move(name), std::move(layout), context_,
                                                options_, counters_));
  if (!is_loaded()) return;
  try {
    StagedPart& part = *parts_.back();
    StagedPart::Prepared prepared;
    {
      const c10::StreamGuard copy_stream_is_current(context_->copy_stream());
      prepared = part.prepare(Pieces::kChunks);
    }
    record(ready_, context_->copy_stream());
    wait_ready_on_all_users();
    wait_ready(context_->current_stream());
    part.bind_to_device(std::move(prepared));
  } catch (...) {
    leave_after_failure(Parts(parts_).first(parts_.size() - 1));
    throw;
  }
}

void ComponentMover::remove(const std::string& name) {
  const auto found = std::find_if(
      parts_.begin() + 1, parts_.end(),
      [&name](const std::unique_ptr<StagedPart>& part) { return part->name() == name; });
  if (found == parts_.end()) {
    throw InvalidArgument("component '" + options_.name + "': remove: nothing was added as '" +
                          name + "'");
  }
  std::exception_ptr failure;
  const auto attempt = [&failure](auto&& step) {
    try {
      step();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  // The user may write to the tensors from now on. Before the copy stream waits for users.
  attempt([&] { (*found)->arena().wait_copies(); });
  if ((*found)->is_loaded()) attempt([&] { leave(Parts(&*found, 1)); });
  parts_.erase(found);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
