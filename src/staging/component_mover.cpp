// SPDX-License-Identifier: Apache-2.0
#include "component_mover.hpp"
#include "tensor_binding.hpp"

#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>

#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

ComponentMover::ComponentMover(StagingLayout layout, std::shared_ptr<DeviceContext> context,
                               const StagerOptions& options, StagerCounters& counters)
    : context_(std::move(context)),
      options_(options),
      counters_(counters),
      layout_(std::move(layout)),
      bytes_(layout_.padded_bytes()),
      masters_(build_masters(layout_, context_, options_)),
      ready_(context_->device().type()),
      done_(context_->device().type()) {}

ComponentMover::~ComponentMover() {
  const CancellationDeferral deferral;
  if (is_loaded()) {
    // In a forked child the device must not be touched: there the slab is given up as if in use.
    const bool is_idle = context_->is_creating_process() && order_copies_behind_users() == nullptr;
    static_cast<void>(bind_to_masters());
    drop_slab(is_idle);
  }
  masters_.arena->release_ownership();
}

bool ComponentMover::load(Pieces pieces) {
  const c10::Stream caller = context_->current_stream();
  if (is_loaded()) {
    wait_ready(caller);
    return false;
  }
  // Prepare: all that can fail. Until the tensors are bound, dropping the new slab is safe: its
  // memory belongs to the copy stream, behind whatever was queued there.
  check_bound_to_masters();
  report_grad_mode();
  users_.reserve(8);
  auto slab = c10::make_intrusive<DeviceSlab>(context_->device(), options_.name);
  std::vector<c10::Storage> storages = fill(*slab, pieces);
  const std::vector<at::Tensor> views = make_views(layout_, storages);
  record(ready_, context_->copy_stream());
  wait_ready(caller);

  // Commit: nothing below fails.
  for (std::size_t index = 0; index < layout_.tensors.size(); ++index) {
    bind(layout_.tensors[index], views[index]);
  }
  device_storages_ = std::move(storages);
  slab_ = std::move(slab);
  return true;
}

void ComponentMover::check_bound_to_masters() const {
  for (const TensorRecord& record : layout_.tensors) {
    if (is_bound_to(record, masters_.storages[record.group])) continue;
    throw StateError("component '" + options_.name + "': load: tensor '" + record.path +
                     "' was replaced, moved or reshaped since it was staged");
  }
}

void ComponentMover::report_grad_mode() {
  if (grad_mode_reported_ || !c10::GradMode::is_enabled()) return;
  const auto found =
      std::find_if(layout_.tensors.begin(), layout_.tensors.end(),
                   [](const TensorRecord& record) { return record.tensor.requires_grad(); });
  if (found == layout_.tensors.end()) return;
  grad_mode_reported_ = true;
  emit(EventKind::kGradEnabled, 0, found->path);
}

std::vector<c10::Storage> ComponentMover::fill(DeviceSlab& slab, Pieces pieces) {
  const c10::StreamGuard copy_stream_is_current(context_->copy_stream());
  std::vector<c10::Storage> storages;
  storages.reserve(layout_.groups.size());
  if (pieces == Pieces::kStorages) {
    for (std::size_t index = 0; index < layout_.groups.size(); ++index) {
      const std::int64_t bytes = layout_.groups[index].bytes;
      std::byte* data = bytes == 0 ? nullptr : slab.allocate(bytes);
      if (bytes != 0) ++counters_.allocations;
      storages.push_back(slab.make_storage(data, bytes));
      if (bytes != 0) copy_to_device(storages.back(), byte_tensor(masters_.storages[index]));
    }
    return storages;
  }
  std::vector<std::byte*> chunks;
  for (const std::int64_t bytes : layout_.chunk_bytes) {
    chunks.push_back(slab.allocate(bytes));
    ++counters_.allocations;
  }
  for (std::size_t index = 0; index < chunks.size(); ++index) {
    copy_to_device(slab.make_storage(chunks[index], layout_.chunk_bytes[index]),
                   masters_.chunks[index]);
  }
  for (const StorageGroup& group : layout_.groups) {
    std::byte* data = group.bytes == 0 ? nullptr : chunks[group.chunk] + group.chunk_offset;
    storages.push_back(slab.make_storage(data, group.bytes));
  }
  return storages;
}

void ComponentMover::copy_to_device(const c10::Storage& to, const at::Tensor& from) {
  masters_.arena->note_copies_queued();  // First: a failing copy may have been queued all the same.
  byte_tensor(to).copy_(from, /*non_blocking=*/true);
  ++counters_.copies;
}

void ComponentMover::record(StreamEvent& event, const c10::Stream& stream) {
  event.record(stream);
  if (context_->has_streams()) ++counters_.event_records;
}

void ComponentMover::wait_ready(const c10::Stream& stream) {
  if (stream != context_->copy_stream()) {  // That one is in order by itself.
    ready_.block(stream);
    ++counters_.stream_waits;
  }
  if (std::find(users_.begin(), users_.end(), stream) == users_.end()) users_.push_back(stream);
}

void ComponentMover::use_on(const c10::Stream& stream) {
  if (stream.device() != context_->device() && context_->has_streams()) {
    throw InvalidArgument("component '" + options_.name + "': use_on: the stream is of " +
                          stream.device().str() + ", the component of " + context_->device().str());
  }
  if (!is_loaded()) {
    throw StateError("component '" + options_.name + "': use_on: the component is not loaded");
  }
  wait_ready(stream);
}

void ComponentMover::wait_copies() {
  masters_.arena->wait_copies();
}

void ComponentMover::offload() {
  if (!is_loaded()) return;
  std::exception_ptr not_idle = order_copies_behind_users();
  const std::string replaced = bind_to_masters();
  drop_slab(/*is_idle=*/not_idle == nullptr);
  if (not_idle) std::rethrow_exception(not_idle);
  if (!replaced.empty()) {
    throw StateError("component '" + options_.name + "': offload: left alone, since user code " +
                     "replaced, moved or reshaped it while loaded: " + replaced);
  }
}

/// Null, or why work on the slab may still be running.
std::exception_ptr ComponentMover::order_copies_behind_users() noexcept {
  std::exception_ptr not_idle;
  try {
    const c10::Stream current = context_->current_stream();
    if (std::find(users_.begin(), users_.end(), current) == users_.end()) users_.push_back(current);
  } catch (...) {
    not_idle = std::current_exception();
  }
  for (const c10::Stream& user : users_) {
    if (user == context_->copy_stream()) continue;
    try {
      record(done_, user);
      done_.block(context_->copy_stream());
      ++counters_.stream_waits;
      continue;
    } catch (...) {
      emit(EventKind::kErrorDropped, 0, current_exception_text());
    }
    try {
      context_->synchronize(user);  // The slow way to the same certainty.
      ++counters_.host_waits;
    } catch (...) {
      not_idle = std::current_exception();
    }
  }
  return not_idle;
}

/// The paths of the tensors that are not ours any more; they are left alone.
std::string ComponentMover::bind_to_masters() noexcept {
  std::string replaced;
  for (std::size_t index = 0; index < layout_.tensors.size(); ++index) {
    const TensorRecord& record = layout_.tensors[index];
    if (is_bound_to(record, device_storages_[record.group])) {
      bind(record, masters_.views[index]);
      continue;
    }
    if (!replaced.empty()) replaced += ", ";
    replaced += "'" + record.path + "'";
    emit(EventKind::kTensorReplaced, 0, record.path);
  }
  return replaced;
}

void ComponentMover::drop_slab(bool is_idle) noexcept {
  report_still_referenced();
  device_storages_.clear();
  slab_->release_ownership();
  if (is_idle) {
    slab_.reset();
  } else {
    // Work that cannot be awaited may still use it. It stays allocated for ever.
    emit(EventKind::kSlabQuarantined, slab_->bytes(), "work on it could not be awaited");
    context_->add_quarantined(slab_->bytes());
    static_cast<void>(slab_.release());
  }
  users_.clear();
}

void ComponentMover::report_still_referenced() noexcept {
  std::string paths;
  for (std::size_t index = 0; index < layout_.groups.size(); ++index) {
    if (device_storages_[index].use_count() == 1) continue;
    for (const std::size_t member : layout_.groups[index].members) {
      if (!paths.empty()) paths += ", ";
      paths += layout_.tensors[member].path;
    }
  }
  std::erase_if(lingering_, [](const auto& slab) { return slab.expired(); });
  if (paths.empty()) return;
  lingering_.emplace_back(slab_);
  emit(EventKind::kSlabStillReferenced, slab_->bytes(), paths);
  // Whoever drops the last view does so at any time: from then on only the allocator can keep the
  // memory until the work queued so far is done.
  try {
    for (const c10::Stream& user : users_) slab_->record_stream(user);
  } catch (...) {
    emit(EventKind::kErrorDropped, 0, current_exception_text());
  }
}

std::int64_t ComponentMover::still_referenced_bytes() const {
  std::int64_t sum = 0;
  for (const auto& slab : lingering_) {
    if (const auto alive = slab.lock()) sum += alive->bytes();
  }
  return sum;
}

void ComponentMover::emit(EventKind kind, std::int64_t bytes,
                          std::string_view message) const noexcept {
  if (context_->sink() == nullptr) return;
  context_->sink()->on_event({.kind = kind,
                              .device = context_->device(),
                              .component = options_.name,
                              .message = message,
                              .bytes = bytes});
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
