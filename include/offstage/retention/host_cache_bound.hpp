// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Keeps the cache of LibTorch's pinned host allocator within a bound.

#include <offstage/base/config.hpp>
#include <offstage/base/event.hpp>
#include <offstage/base/event_sink.hpp>
#include <offstage/retention/retention_reason.hpp>

#include <c10/core/DeviceType.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// One decision on idle pinned host memory.
struct HostCacheDecision {
  /// `kWithinBounds`, `kCachedOverBound` or `kTelemetryFailed`.
  RetentionReason reason = RetentionReason::kWithinBounds;
  std::optional<std::int64_t> cached = {};  ///< Bytes; empty if they could not be read.
  std::chrono::nanoseconds duration{};      ///< Host time, a release included.
  bool released = false;                    ///< False as well if the release was tried and failed.
};

/// How often what happened.
struct HostCacheCounters {
  std::int64_t decisions = 0;
  std::int64_t telemetry_failures = 0;
  std::int64_t releases = 0;          ///< Releases that succeeded.
  std::int64_t release_failures = 0;  ///< Releases that threw.
};

/// LibTorch's pinned allocator keeps what is freed, for ever, and the node can run out of memory
/// for it. This gives all idle pinned memory back once more than a number of bytes is idle.
///
/// The masters of a stager count only after they died, and only if they came from this allocator
/// (`HostAllocatorMemory`).
///
/// @par Cost
/// Reading the figures takes locks of the allocator and allocates; a release unpins block by block
/// and blocks the host until the device is idle.
/// @par Events
/// `kHostCacheDecided` for every decision, `kTelemetryFailed` for the first failure to read
/// (`reason`: "host_allocator_stats"), `kReleaseFailed` for every release that fails. Their device
/// has the type and no index. They are sent with the object's lock held.
/// @par Threads
/// All members may be called concurrently; decisions are taken one after the other.
class HostCacheBound {
 public:
  /// @param type              The device that the memory is pinned for.
  /// @param max_cached_bytes  Idle memory of exactly this much is kept.
  /// @param sink              Is told of decisions; may be null.
  /// @throws InvalidArgument if `max_cached_bytes` is negative, or if LibTorch has no pinned
  ///         allocator for `type`.
  HostCacheBound(c10::DeviceType type, std::int64_t max_cached_bytes,
                 std::shared_ptr<EventSink> sink = nullptr);

  /// Takes one decision. A figure that cannot be read releases.
  /// @returns whether the cache was released.
  /// @throws What the release throws; it has been recorded then.
  bool release_if_needed();

  [[nodiscard]] std::int64_t max_cached_bytes() const noexcept { return max_cached_bytes_; }

  /// The latest decision; empty before the first.
  [[nodiscard]] std::optional<HostCacheDecision> last_decision() const;
  [[nodiscard]] HostCacheCounters counters() const;

 private:
  [[nodiscard]] std::optional<std::int64_t> read_cached();
  void record(HostCacheDecision& decision, std::chrono::steady_clock::time_point start) noexcept;
  void send(EventKind kind, std::string_view reason, std::string_view message) const noexcept;

  const c10::DeviceType type_;
  const std::int64_t max_cached_bytes_;
  const std::shared_ptr<EventSink> sink_;
  std::mutex decision_mutex_;
  mutable std::mutex record_mutex_;  // Guards the two below; no device call is made under it.
  std::optional<HostCacheDecision> last_;
  HostCacheCounters counters_;
};

OFFSTAGE_NAMESPACE_END
