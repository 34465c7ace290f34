// SPDX-License-Identifier: Apache-2.0
#include "decision_figures.hpp"
#include "retention_ledger.hpp"
#include "telemetry_warning.hpp"

#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>

#include <algorithm>
#include <string>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

BoundedAllocatorCache::BoundedAllocatorCache(c10::Device device,
                                             std::shared_ptr<TelemetryBackend> backend,
                                             std::shared_ptr<const RetentionPolicy> policy,
                                             std::shared_ptr<EventSink> sink,
                                             BoundedAllocatorCacheOptions options)
    : device_(device),
      backend_(std::move(backend)),
      policy_(std::move(policy)),
      sink_(std::move(sink)),
      options_(std::move(options)),
      ledger_(std::make_shared<detail::RetentionLedger>()) {
  if (!device_.has_index()) {
    throw InvalidArgument("bounded allocator cache: device must have an explicit index, got " +
                          device_.str());
  }
  if (backend_ == nullptr) {
    throw InvalidArgument("bounded allocator cache: backend must not be null");
  }
  if (policy_ == nullptr) {
    throw InvalidArgument("bounded allocator cache: policy must not be null");
  }
  if (options_.decisions_kept > kept_.max_size()) {
    throw InvalidArgument("bounded allocator cache: decisions_kept is out of range, got " +
                          std::to_string(options_.decisions_kept));
  }
  kept_.reserve(options_.decisions_kept);  // Now, so that a decision allocates nothing.
}

BoundedAllocatorCache::~BoundedAllocatorCache() = default;

bool BoundedAllocatorCache::release_if_needed(bool force) {
  const bool released = decide_and_release(force);
  if (!force && options_.host_cache != nullptr) options_.host_cache->release_if_needed();
  return released;
}

bool BoundedAllocatorCache::release_forced() noexcept {
  const CancellationDeferral deferral;
  try {
    return release_if_needed(true);
  } catch (...) {
    return false;
  }
}

StagedBytesToken BoundedAllocatorCache::attach(std::int64_t bytes) {
  return {ledger_, bytes};
}

RetentionState BoundedAllocatorCache::state() const {
  return ledger_->state();
}

std::optional<RetentionDecision> BoundedAllocatorCache::last_decision() const {
  const std::lock_guard lock(record_mutex_);
  return last_;
}

std::vector<RetentionDecision> BoundedAllocatorCache::decisions() const {
  const std::lock_guard lock(record_mutex_);
  std::vector<RetentionDecision> in_order = kept_;
  std::rotate(in_order.begin(), in_order.begin() + static_cast<std::ptrdiff_t>(oldest_),
              in_order.end());
  return in_order;
}

RetentionCounters BoundedAllocatorCache::counters() const {
  const std::lock_guard lock(record_mutex_);
  return counters_;
}

bool BoundedAllocatorCache::decide_and_release(bool force) {
  // Held over the device calls, the release among them, which blocks: a second thread that finds
  // the same excess must wait and then see the figures after the release, or the device would be
  // flushed twice for it.
  const std::lock_guard lock(decision_mutex_);
  const auto start = std::chrono::steady_clock::now();
  RetentionDecision decision;
  if (force) {
    decision.reason = RetentionReason::kForced;
    decision.state = ledger_->state();
  } else if (!decide(decision)) {
    record(decision, /*release_failed=*/false, start);
    return false;
  }
  try {
    backend_->release_cached(device_);
    decision.released = true;
  } catch (...) {
    if (is_forced_unwinding()) throw;
    record(decision, /*release_failed=*/true, start);
    const std::string cause = current_exception_text();
    send(EventKind::kReleaseFailed, to_string(decision.reason), cause);
    throw;
  }
  record(decision, /*release_failed=*/false, start);
  return true;
}

// True if the cache is to be released.
bool BoundedAllocatorCache::decide(RetentionDecision& decision) {
  if (!policy_->needs_figures()) {
    decision.state = ledger_->state();
    const RetentionVerdict verdict = detail::verdict_of(*policy_, {}, decision.state);
    decision.reason = verdict.reason;
    decision.bound = verdict.bound;
    return verdict.release;
  }
  MemoryFigures figures;
  if (!read(figures)) {
    decision.reason = RetentionReason::kTelemetryFailed;
    decision.state = ledger_->state();
    return true;
  }
  const auto [verdict, before] = ledger_->decide(*policy_, figures);
  decision.reason = verdict.reason;
  decision.figures = figures;
  decision.state = before;
  decision.bound = verdict.bound;
  decision.releasable = figures.releasable();
  if (verdict.release && decision.releasable == 0 && options_.skip_fruitless_releases) {
    decision.reason = RetentionReason::kNothingToRelease;
    return false;
  }
  return verdict.release;
}

// False if a figure could not be read; the failure is recorded.
bool BoundedAllocatorCache::read(MemoryFigures& figures) {
  TelemetryKind kind = TelemetryKind::kAllocatorStats;
  try {
    figures.allocator = read_allocator_stats(*backend_, device_);
    kind = TelemetryKind::kDeviceMemory;
    figures.device = read_device_memory(*backend_, device_);
    return true;
  } catch (...) {
    if (is_forced_unwinding()) throw;
    if (is_first_failure(kind)) {
      send(EventKind::kTelemetryFailed, to_string(kind), detail::telemetry_warning());
    }
    return false;
  }
}

bool BoundedAllocatorCache::is_first_failure(TelemetryKind kind) noexcept {
  const std::lock_guard lock(record_mutex_);
  return ++counters_.telemetry_failures[static_cast<std::size_t>(kind)] == 1;
}

void BoundedAllocatorCache::record(RetentionDecision& decision, bool release_failed,
                                   std::chrono::steady_clock::time_point start) noexcept {
  decision.duration = std::chrono::steady_clock::now() - start;
  {
    const std::lock_guard lock(record_mutex_);
    ++counters_.by_reason[static_cast<std::size_t>(decision.reason)];
    if (decision.released) ++counters_.releases;
    if (release_failed) ++counters_.release_failures;
    last_ = decision;
    if (kept_.size() < options_.decisions_kept) {
      kept_.push_back(decision);
    } else if (!kept_.empty()) {
      kept_[oldest_] = decision;
      oldest_ = (oldest_ + 1) % kept_.size();
    }
  }
  if (sink_ == nullptr) return;
  const detail::DecisionFigures figures(decision);
  sink_->on_event({.kind = EventKind::kRetentionDecided,
                   .device = device_,
                   .component = {},
                   .reason = to_string(decision.reason),
                   .message = {},
                   .bytes = decision.figures ? decision.figures->cached() : 0,
                   .duration = decision.duration,
                   .figures = figures.view()});
}

void BoundedAllocatorCache::send(EventKind kind, std::string_view reason,
                                 std::string_view message) const noexcept {
  if (sink_ == nullptr) return;
  sink_->on_event({.kind = kind, .device = device_, .reason = reason, .message = message});
}

OFFSTAGE_NAMESPACE_END
