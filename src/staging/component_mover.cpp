// SPDX-License-Identifier: Apache-2.0
#include "component_mover.hpp"

#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>

#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

ComponentMover::ComponentMover(StagingLayout layout, std::shared_ptr<DeviceContext> context,
                               const StagerOptions& options, StagerCounters& counters)
    : context_(std::move(context)),
      options_(options),
      counters_(counters),
      ready_(context_->device().type()),
      done_(context_->device().type()) {
  if (options_.source) {
    for (const TensorRecord& record : layout.tensors) {
      unlisted_.insert(record.tensor.unsafeGetTensorImpl());
    }
    for (const NamedTensor& named : options_.source()) {
      if (named.tensor.defined()) unlisted_.erase(named.tensor.unsafeGetTensorImpl());
    }
  }
  parts_.push_back(
      std::make_unique<StagedPart>("", std::move(layout), context_, options_, counters_));
}

ComponentMover::~ComponentMover() {
  const CancellationDeferral deferral;
  if (!is_loaded()) return;
  if (context_->is_creating_process()) {
    leave_after_failure(parts_);
    return;
  }
  // In a forked child the device must not be touched: there the slab is given up as if in use.
  static_cast<void>(bind_to_masters(parts_));
  drop_slabs(parts_, /*is_idle=*/false);
}

bool ComponentMover::load(Pieces pieces) {
  const c10::Stream caller = context_->current_stream();
  if (is_loaded()) {
    wait_ready(caller);
    return false;
  }
  // Prepare: all that can fail. Until the tensors are bound, dropping the new slabs is safe: their
  // memory belongs to the copy stream, behind whatever was queued there.
  check_list();
  for (const auto& part : parts_) part->check_bound_to_masters();
  report_grad_mode();
  users_.reserve(8);
  std::vector<StagedPart::Prepared> prepared;
  prepared.reserve(parts_.size());
  {
    const c10::StreamGuard copy_stream_is_current(context_->copy_stream());
    for (const auto& part : parts_) prepared.push_back(part->prepare(pieces));
  }
  record(ready_, context_->copy_stream());
  wait_ready(caller);

  // Commit: nothing below fails.
  for (std::size_t index = 0; index < parts_.size(); ++index) {
    parts_[index]->bind_to_device(std::move(prepared[index]));
  }
  return true;
}

/// Lists the module anew, if the user has told how, and compares.
void ComponentMover::check_list() const {
  if (!options_.source) return;
  std::unordered_set<const c10::TensorImpl*> managed;
  for (const auto& part : parts_) {
    for (const TensorRecord& record : part->layout().tensors) {
      managed.insert(record.tensor.unsafeGetTensorImpl());
    }
  }
  std::unordered_set<const c10::TensorImpl*> listed;
  for (const NamedTensor& named : options_.source()) {
    if (!named.tensor.defined()) continue;
    const c10::TensorImpl* impl = named.tensor.unsafeGetTensorImpl();
    listed.insert(impl);
    if (managed.contains(impl)) continue;
    throw StateError("component '" + options_.name + "': load: tensor '" + named.path +
                     "' has appeared since the component was staged; add() adopts it");
  }
  for (const TensorRecord& record : parts_.front()->layout().tensors) {
    const c10::TensorImpl* impl = record.tensor.unsafeGetTensorImpl();
    if (listed.contains(impl) || unlisted_.contains(impl)) continue;
    throw StateError("component '" + options_.name + "': load: tensor '" + record.path +
                     "' has vanished since the component was staged");
  }
}

void ComponentMover::report_grad_mode() {
  if (grad_mode_reported_ || !c10::GradMode::is_enabled()) return;
  for (const auto& part : parts_) {
    for (const TensorRecord& record : part->layout().tensors) {
      if (!record.tensor.requires_grad()) continue;
      grad_mode_reported_ = true;
      emit(EventKind::kGradEnabled, 0, record.path);
      return;
    }
  }
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

void ComponentMover::wait_ready_on_all_users() {
  for (const c10::Stream& user : users_) wait_ready(user);
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
  for (const auto& part : parts_) part->arena().wait_copies();
}

void ComponentMover::offload() {
  if (is_loaded()) leave(parts_);
}

/// Binds parts to their masters and drops their device memory, whatever fails.
/// @param settled  For each part, groups whose device copies are known to be older than their
///                 masters; none if empty.
void ComponentMover::leave(Parts parts, const std::vector<Groups>& settled) {
  const std::exception_ptr not_idle = order_copies_behind_users();
  std::exception_ptr edits_failed;
  try {
    keep_or_report_edits(parts, settled, /*can_copy=*/not_idle == nullptr);
  } catch (...) {
    edits_failed = std::current_exception();
  }
  const std::string replaced = bind_to_masters(parts);
  drop_slabs(parts, /*is_idle=*/not_idle == nullptr);
  if (not_idle) std::rethrow_exception(not_idle);
  if (edits_failed) std::rethrow_exception(edits_failed);
  if (!replaced.empty()) {
    throw StateError("component '" + options_.name + "': offload: left alone, since user code " +
                     "replaced, moved or reshaped it while loaded: " + replaced);
  }
}

/// The same where another error is leaving, or nobody could catch one.
void ComponentMover::leave_after_failure(Parts parts, const std::vector<Groups>& settled) noexcept {
  try {
    leave(parts, settled);
  } catch (...) {
    emit(EventKind::kErrorDropped, 0, current_exception_text());
  }
}

/// Null, or why work on the slabs may still be running.
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
std::string ComponentMover::bind_to_masters(Parts parts) noexcept {
  std::string replaced;
  for (const auto& part : parts) {
    for (const std::size_t index : part->bind_to_masters()) {
      const std::string& path = part->layout().tensors[index].path;
      if (!replaced.empty()) replaced += ", ";
      replaced += "'" + path + "'";
      emit(EventKind::kTensorReplaced, 0, path);
    }
  }
  return replaced;
}

void ComponentMover::drop_slabs(Parts parts, bool is_idle) noexcept {
  for (const auto& part : parts) {
    report_still_referenced(*part);
    c10::intrusive_ptr<DeviceSlab> slab = part->take_slab();
    if (is_idle) continue;
    // Work that cannot be awaited may still use it. It stays allocated for ever.
    emit(EventKind::kSlabQuarantined, slab->bytes(), "work on it could not be awaited");
    context_->add_quarantined(slab->bytes());
    static_cast<void>(slab.release());
  }
  if (!is_loaded()) users_.clear();
}

void ComponentMover::report_still_referenced(StagedPart& part) noexcept {
  std::erase_if(lingering_, [](const auto& slab) { return slab.expired(); });
  const std::string paths = part.paths_still_referenced();
  if (paths.empty()) return;
  const c10::intrusive_ptr<DeviceSlab>& slab = part.slab();
  lingering_.emplace_back(slab);
  emit(EventKind::kSlabStillReferenced, slab->bytes(), paths);
  // Whoever drops the last view does so at any time: from then on only the allocator can keep the
  // memory until the work queued so far is done.
  try {
    for (const c10::Stream& user : users_) slab->record_stream(user);
  } catch (...) {
    emit(EventKind::kErrorDropped, 0, current_exception_text());
  }
}

std::int64_t ComponentMover::bytes() const noexcept {
  return std::accumulate(parts_.begin(), parts_.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& part) { return sum + part->bytes(); });
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
