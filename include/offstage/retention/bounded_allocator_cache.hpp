// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Keeps a device's allocator cache between components, within bounds.

#include <offstage/base/config.hpp>
#include <offstage/base/error.hpp>
#include <offstage/base/event.hpp>
#include <offstage/base/event_sink.hpp>
#include <offstage/base/exception_text.hpp>
#include <offstage/device/telemetry_backend.hpp>
#include <offstage/device/telemetry_figures.hpp>
#include <offstage/retention/fixed_retention.hpp>
#include <offstage/retention/retention_policy.hpp>

#include <c10/core/Device.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

/// One decision that was taken.
struct RetentionDecision {
  RetentionReason reason = RetentionReason::kWithinBounds;
  std::optional<MemoryFigures> figures;  ///< Empty if they were not asked for or not readable.
  std::int64_t bound = 0;                ///< The bound that decided, in bytes; 0 if there is none.
  std::chrono::nanoseconds duration{};   ///< Host time, a release included.
  bool released = false;                 ///< False as well if the release was tried and failed.
};

/// How often what happened.
struct RetentionCounters {
  std::array<std::int64_t, kRetentionReasons> by_reason{};
  std::array<std::int64_t, kTelemetryKinds> telemetry_failures{};
  std::int64_t releases = 0;          ///< Releases that succeeded.
  std::int64_t release_failures = 0;  ///< Releases that threw.

  [[nodiscard]] std::int64_t decisions(RetentionReason reason) const noexcept {
    return by_reason[static_cast<std::size_t>(reason)];
  }
  [[nodiscard]] std::int64_t failures(TelemetryKind kind) const noexcept {
    return telemetry_failures[static_cast<std::size_t>(kind)];
  }
};

/// Asks after every offload whether one device's allocator may keep its idle memory for the next
/// component, and gives that memory back to the device if not.
///
/// Local to its owner: it does not replace the program's own clearing of caches. Two facts to
/// know: LibTorch's release has no device argument and flushes every device of the type, and a
/// release blocks the host.
///
/// @par Events
/// `kRetentionDecided` for every decision (`reason`: its spelling, `bytes`: cached, 0 if unknown),
/// `kTelemetryFailed` for the first failure to read of each TelemetryKind (`reason`: the kind,
/// `message`: the cause), `kReleaseFailed` for every release that fails (`message`: the cause).
/// They are sent with the object's lock held.
///
/// @par Threads
/// All members may be called concurrently; decisions are taken one after the other.
class BoundedAllocatorCache {
 public:
  /// @param device   Has an explicit index.
  /// @param backend  Answers for `device`; shared, since figures and releases have no state.
  /// @param policy   Decides; the default keeps up to a quarter of the device.
  /// @param sink     Is told of decisions; may be null.
  /// @throws InvalidArgument naming the field if one of these does not hold.
  BoundedAllocatorCache(
      c10::Device device, std::shared_ptr<TelemetryBackend> backend,
      std::shared_ptr<const RetentionPolicy> policy = std::make_shared<const FixedRetention>(),
      std::shared_ptr<EventSink> sink = nullptr)
      : device_(device),
        backend_(std::move(backend)),
        policy_(std::move(policy)),
        sink_(std::move(sink)) {
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
  }

  BoundedAllocatorCache(const BoundedAllocatorCache&) = delete;
  BoundedAllocatorCache& operator=(const BoundedAllocatorCache&) = delete;
  BoundedAllocatorCache(BoundedAllocatorCache&&) = delete;
  BoundedAllocatorCache& operator=(BoundedAllocatorCache&&) = delete;
  ~BoundedAllocatorCache() = default;

  /// Takes one decision. One that keeps the cache reads the figures and does nothing else: it
  /// touches no device and no heap. A figure that cannot be read releases.
  /// @param force  Release whatever the figures are; they are not read.
  /// @returns whether the cache was released.
  /// @throws What the release throws, with `force` as well; it has been recorded then. What a
  ///         policy of the user's own throws.
  bool release_if_needed(bool force = false) {
    // Held over the release, which blocks: a second thread that finds the same excess must wait
    // and then see the figures after the release, or the device would be flushed twice for it.
    const std::lock_guard lock(mutex_);
    const auto start = std::chrono::steady_clock::now();
    RetentionDecision decision;
    const bool release = force ? decide_forced(decision) : decide(decision);
    if (release) {
      try {
        backend_->release_cached(device_);
        decision.released = true;
        ++counters_.releases;
      } catch (...) {
        if (is_forced_unwinding()) throw;
        ++counters_.release_failures;
        record(decision, start);
        const std::string cause = current_exception_text();
        send(EventKind::kReleaseFailed, to_string(decision.reason), cause, 0, {});
        throw;
      }
    }
    record(decision, start);
    return decision.released;
  }

  /// `release_if_needed(true)` for a path on which another error is already leaving: a failure is
  /// recorded like any other and dropped. The calling thread is not cancelled meanwhile.
  /// @returns whether the cache was released.
  bool release_forced() noexcept {
    const CancellationDeferral deferral;
    try {
      return release_if_needed(true);
    } catch (...) {
      return false;
    }
  }

  [[nodiscard]] c10::Device device() const noexcept { return device_; }
  [[nodiscard]] const RetentionPolicy& policy() const noexcept { return *policy_; }
  [[nodiscard]] const TelemetryBackend& backend() const noexcept { return *backend_; }

  /// The latest decision; empty before the first.
  [[nodiscard]] std::optional<RetentionDecision> last_decision() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }

  [[nodiscard]] RetentionCounters counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
  }

 private:
  static bool decide_forced(RetentionDecision& decision) noexcept {
    decision.reason = RetentionReason::kForced;
    return true;
  }

  bool decide(RetentionDecision& decision) {
    MemoryFigures figures;
    if (policy_->needs_figures()) {
      if (!read(figures)) {
        decision.reason = RetentionReason::kTelemetryFailed;
        return true;
      }
      decision.figures = figures;
    }
    const RetentionVerdict verdict = policy_->decide(figures);
    decision.reason = verdict.reason;
    decision.bound = verdict.bound;
    return verdict.release;
  }

  // False if a figure could not be read; the failure is recorded.
  bool read(MemoryFigures& figures) {
    TelemetryKind kind = TelemetryKind::kAllocatorStats;
    try {
      figures.allocator = read_allocator_stats(*backend_, device_);
      kind = TelemetryKind::kDeviceMemory;
      figures.device = read_device_memory(*backend_, device_);
      return true;
    } catch (...) {
      if (is_forced_unwinding()) throw;
      std::int64_t& failures = counters_.telemetry_failures[static_cast<std::size_t>(kind)];
      if (++failures == 1) {
        const std::string cause = current_exception_text();
        send(EventKind::kTelemetryFailed, to_string(kind), cause, 0, {});
      }
      return false;
    }
  }

  void record(RetentionDecision& decision, std::chrono::steady_clock::time_point start) noexcept {
    decision.duration = std::chrono::steady_clock::now() - start;
    ++counters_.by_reason[static_cast<std::size_t>(decision.reason)];
    last_ = decision;
    const std::int64_t cached = decision.figures ? decision.figures->cached() : 0;
    send(EventKind::kRetentionDecided, to_string(decision.reason), {}, cached, decision.duration);
  }

  void send(EventKind kind, std::string_view reason, std::string_view message, std::int64_t bytes,
            std::chrono::nanoseconds duration) noexcept {
    if (sink_ == nullptr) return;
    sink_->on_event({.kind = kind,
                     .device = device_,
                     .component = {},
                     .reason = reason,
                     .message = message,
                     .bytes = bytes,
                     .duration = duration});
  }

  const c10::Device device_;
  const std::shared_ptr<TelemetryBackend> backend_;
  const std::shared_ptr<const RetentionPolicy> policy_;
  const std::shared_ptr<EventSink> sink_;
  mutable std::mutex mutex_;
  std::optional<RetentionDecision> last_;
  RetentionCounters counters_;
};

OFFSTAGE_NAMESPACE_END
