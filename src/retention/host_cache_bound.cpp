// SPDX-License-Identifier: Apache-2.0
#include "telemetry_warning.hpp"

#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>
#include <offstage/device/host_allocator_memory.hpp>
#include <offstage/retention/host_cache_bound.hpp>

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

HostCacheBound::HostCacheBound(c10::DeviceType type, std::int64_t max_cached_bytes,
                               std::shared_ptr<EventSink> sink)
    : type_(type), max_cached_bytes_(max_cached_bytes), sink_(std::move(sink)) {
  if (max_cached_bytes < 0) {
    throw InvalidArgument("host cache bound: max_cached_bytes must not be negative, got " +
                          std::to_string(max_cached_bytes));
  }
  if (!HostAllocatorMemory::is_available(type)) {
    throw InvalidArgument(
        "host cache bound: no pinned host allocator is registered for device type " +
        c10::DeviceTypeName(type, /*lower_case=*/true));
  }
}

bool HostCacheBound::release_if_needed() {
  // Held over the release, which blocks: a second thread that finds the same excess must see the
  // figures after the release.
  const std::lock_guard lock(decision_mutex_);
  const auto start = std::chrono::steady_clock::now();
  HostCacheDecision decision;
  decision.cached = read_cached();
  if (!decision.cached) {
    decision.reason = RetentionReason::kTelemetryFailed;
  } else if (*decision.cached > max_cached_bytes_) {
    decision.reason = RetentionReason::kCachedOverBound;
  } else {
    record(decision, start);
    return false;
  }
  try {
    at::getHostAllocator(type_)->empty_cache();
    decision.released = true;
  } catch (...) {
    if (is_forced_unwinding()) throw;
    record(decision, start);
    const std::string cause = current_exception_text();
    send(EventKind::kReleaseFailed, to_string(decision.reason), cause);
    throw;
  }
  record(decision, start);
  return true;
}

std::optional<HostCacheDecision> HostCacheBound::last_decision() const {
  const std::lock_guard lock(record_mutex_);
  return last_;
}

HostCacheCounters HostCacheBound::counters() const {
  const std::lock_guard lock(record_mutex_);
  return counters_;
}

// Empty if the figures cannot be read or are impossible.
std::optional<std::int64_t> HostCacheBound::read_cached() {
  try {
    const at::HostStats stats = at::getHostAllocator(type_)->get_stats();
    const std::int64_t held = stats.allocated_bytes.current;
    const std::int64_t in_use = stats.active_bytes.current;
    if (held < 0 || in_use < 0 || (held == 0 && in_use > 0)) {
      throw TelemetryError("pinned allocator: impossible figure: " + std::to_string(held) +
                           " bytes held, " + std::to_string(in_use) + " in use");
    }
    return std::max<std::int64_t>(0, held - in_use);
  } catch (...) {
    if (is_forced_unwinding()) throw;
    const bool is_first = [this] {
      const std::lock_guard lock(record_mutex_);
      return ++counters_.telemetry_failures == 1;
    }();
    if (is_first) {
      send(EventKind::kTelemetryFailed, "host_allocator_stats", detail::telemetry_warning());
    }
    return std::nullopt;
  }
}

void HostCacheBound::record(HostCacheDecision& decision,
                            std::chrono::steady_clock::time_point start) noexcept {
  decision.duration = std::chrono::steady_clock::now() - start;
  {
    const std::lock_guard lock(record_mutex_);
    ++counters_.decisions;
    if (decision.released) {
      ++counters_.releases;
    } else if (decision.reason != RetentionReason::kWithinBounds) {
      ++counters_.release_failures;
    }
    last_ = decision;
  }
  if (sink_ == nullptr) return;
  // Without figures there is nothing to say but the bound.
  const std::array<EventFigure, 3> figures{{{"bound", max_cached_bytes_},
                                            {"released", decision.released ? 1 : 0},
                                            {"cached", decision.cached.value_or(0)}}};
  sink_->on_event({.kind = EventKind::kHostCacheDecided,
                   .device = c10::Device(type_),
                   .component = {},
                   .reason = to_string(decision.reason),
                   .message = {},
                   .bytes = decision.cached.value_or(0),
                   .duration = decision.duration,
                   .figures = std::span(figures).first(decision.cached ? 3 : 2)});
}

void HostCacheBound::send(EventKind kind, std::string_view reason,
                          std::string_view message) const noexcept {
  if (sink_ == nullptr) return;
  sink_->on_event(
      {.kind = kind, .device = c10::Device(type_), .reason = reason, .message = message});
}

OFFSTAGE_NAMESPACE_END
