// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Keeps a device's allocator cache between components, within bounds.

#include <offstage/base/config.hpp>
#include <offstage/base/event.hpp>
#include <offstage/base/event_sink.hpp>
#include <offstage/device/telemetry_backend.hpp>
#include <offstage/device/telemetry_figures.hpp>
#include <offstage/retention/fixed_retention.hpp>
#include <offstage/retention/host_cache_bound.hpp>
#include <offstage/retention/retention_decision.hpp>
#include <offstage/retention/retention_policy.hpp>
#include <offstage/retention/retention_state.hpp>
#include <offstage/retention/staged_bytes_token.hpp>

#include <c10/core/Device.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN

/// What a cache does besides deciding.
struct BoundedAllocatorCacheOptions {
  /// True: a decision to release is dropped where the figures say that a release could give nothing
  /// back (`kNothingToRelease`). It would still block the host. Never where the figures are not
  /// known: forced, unreadable, or a policy that reads none.
  bool skip_fruitless_releases = false;
  /// How many decisions `decisions()` remembers. Their memory is taken at construction.
  std::size_t decisions_kept = 32;
  /// If given, decides on idle pinned host memory after each decision that was not forced.
  std::shared_ptr<HostCacheBound> host_cache = nullptr;
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
/// `message`: the cause, and what it costs), `kReleaseFailed` for every release that fails
/// (`message`: the cause). They are sent with the object's lock held.
///
/// @par Threads
/// All members may be called concurrently. Decisions are taken one after the other; nothing else
/// waits for one.
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
      std::shared_ptr<EventSink> sink = nullptr, BoundedAllocatorCacheOptions options = {});

  BoundedAllocatorCache(const BoundedAllocatorCache&) = delete;
  BoundedAllocatorCache& operator=(const BoundedAllocatorCache&) = delete;
  BoundedAllocatorCache(BoundedAllocatorCache&&) = delete;
  BoundedAllocatorCache& operator=(BoundedAllocatorCache&&) = delete;
  ~BoundedAllocatorCache();

  /// Takes one decision. One that keeps the cache reads the figures and does nothing else: it
  /// touches no device and no heap. A figure that cannot be read releases.
  /// @param force  Release whatever the figures are; they are not read.
  /// @returns whether the cache was released.
  /// @throws What the release throws, with `force` as well; it has been recorded then. What a
  ///         policy of the user's own throws: nothing was released or recorded. What the release of
  ///         the host's cache throws, if there is a bound for it: the device's decision is done.
  bool release_if_needed(bool force = false);

  /// `release_if_needed(true)` for a path on which another error is already leaving: a failure is
  /// recorded like any other and dropped. The calling thread is not cancelled meanwhile.
  /// @returns whether the cache was released.
  bool release_forced() noexcept;

  /// Counts a component of `bytes` bytes in `state().staged_bytes` for as long as the token lives.
  /// @throws InvalidArgument if `bytes` is negative, or the sum of all exceeds an int64.
  [[nodiscard]] StagedBytesToken attach(std::int64_t bytes);

  [[nodiscard]] c10::Device device() const noexcept { return device_; }
  [[nodiscard]] const RetentionPolicy& policy() const noexcept { return *policy_; }
  [[nodiscard]] const TelemetryBackend& backend() const noexcept { return *backend_; }
  [[nodiscard]] RetentionState state() const;

  /// The latest decision; empty before the first.
  [[nodiscard]] std::optional<RetentionDecision> last_decision() const;
  /// The latest decisions, oldest first; at most `decisions_kept`. `to_text` makes a table of them.
  [[nodiscard]] std::vector<RetentionDecision> decisions() const;
  [[nodiscard]] RetentionCounters counters() const;

 private:
  bool decide_and_release(bool force);
  bool decide(RetentionDecision& decision);
  bool read(MemoryFigures& figures);
  bool is_first_failure(TelemetryKind kind) noexcept;
  void record(RetentionDecision& decision, bool release_failed,
              std::chrono::steady_clock::time_point start) noexcept;
  void send(EventKind kind, std::string_view reason, std::string_view message) const noexcept;

  const c10::Device device_;
  const std::shared_ptr<TelemetryBackend> backend_;
  const std::shared_ptr<const RetentionPolicy> policy_;
  const std::shared_ptr<EventSink> sink_;
  const BoundedAllocatorCacheOptions options_;
  const std::shared_ptr<detail::RetentionLedger> ledger_;

  std::mutex decision_mutex_;
  mutable std::mutex record_mutex_;  // Guards all below; no device call is made under it.
  std::optional<RetentionDecision> last_;
  RetentionCounters counters_;
  std::vector<RetentionDecision> kept_;  // A ring of `decisions_kept` once it is full.
  std::size_t oldest_ = 0;               // In the ring.
};

OFFSTAGE_NAMESPACE_END
