// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// One component of a pipeline, with all that its guards need.

#include <offstage/base/config.hpp>
#include <offstage/base/error.hpp>
#include <offstage/base/event.hpp>
#include <offstage/base/event_sink.hpp>
#include <offstage/base/exception_text.hpp>
#include <offstage/components/placement.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>
#include <offstage/staging/stageable.hpp>

#include <cstdint>
#include <cxxabi.h>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

class ComponentScope;

/// A component: a path, the object that moves it, and where the policy wants it.
///
///  - Staged: loaded by its first ComponentScope, offloaded when the last one leaves.
///  - Resident: loaded once by `enable()`, offloaded only by `disable()`; scopes pass through.
///  - Without an object that moves it: nothing ever happens; scopes pass through.
///
/// @par Ownership
/// Shares ownership of the stageable, the cache and the sink. Must outlive its scopes. The
/// destructor moves nothing: the stageable's own destructor cleans up.
/// @par Threads
/// All members, and scopes on one component, may be used concurrently. Loading and offloading are
/// serialised by a lock that is held while they are queued (and while an offload releases the
/// allocator's cache); it is not held while a body runs. Sinks are called with it held.
class Component {
 public:
  /// @param path       Name in reports and errors; not empty.
  /// @param stageable  Moves the component; null if it is not staged at all.
  /// @param placement  What `ComponentPolicy::resolve` says.
  /// @param cache      Released when something fails; null if there is none.
  /// @param sink       Is told of errors that are dropped; may be null.
  /// @throws InvalidArgument if `path` is empty.
  explicit Component(std::string path, std::shared_ptr<Stageable> stageable = nullptr,
                     Placement placement = {},
                     std::shared_ptr<BoundedAllocatorCache> cache = nullptr,
                     std::shared_ptr<EventSink> sink = nullptr)
      : path_(std::move(path)),
        stageable_(std::move(stageable)),
        placement_(placement),
        cache_(std::move(cache)),
        sink_(std::move(sink)) {
    if (path_.empty()) throw InvalidArgument("component: path must not be empty");
  }

  Component(const Component&) = delete;
  Component& operator=(const Component&) = delete;
  Component(Component&&) = delete;
  Component& operator=(Component&&) = delete;
  ~Component() = default;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const Placement& placement() const noexcept { return placement_; }

  /// True if scopes load and offload this component.
  [[nodiscard]] bool staged() const noexcept {
    return stageable_ != nullptr && placement_.residence == Residence::kStaged;
  }

  /// The number of open scopes; 0 for a component without a stageable.
  [[nodiscard]] int holders() const {
    const std::lock_guard lock(mutex_);
    return holders_;
  }

  /// True if the component is on the device as far as its guards know: a scope is open on a staged
  /// one, a resident one is enabled. False without a stageable.
  [[nodiscard]] bool loaded() const {
    const std::lock_guard lock(mutex_);
    return staged() ? holders_ > 0 : enabled_;
  }

  /// Loads a resident component, once. Does nothing for any other.
  /// @throws What the load throws; the component is then not enabled, its offload was tried and
  ///         the cache released as for a scope whose load fails.
  void enable() {
    const std::lock_guard lock(mutex_);
    if (!resident() || enabled_) return;
    load();
    enabled_ = true;
  }

  /// Offloads a resident component that is enabled. Does nothing for any other.
  /// @throws StateError while scopes are open on it; nothing has happened then.
  /// @throws What the offload throws; the component is not enabled any more and the cache released.
  void disable() {
    const std::lock_guard lock(mutex_);
    if (!resident() || !enabled_) return;
    if (holders_ > 0) {
      throw StateError("component '" + path_ + "': cannot be disabled while " +
                       std::to_string(holders_) + " scopes are open on it");
    }
    enabled_ = false;
    offload();
  }

 private:
  friend class ComponentScope;

  [[nodiscard]] bool resident() const noexcept { return stageable_ != nullptr && !staged(); }

  void enter() {
    if (stageable_ == nullptr) return;
    const std::lock_guard lock(mutex_);
    if (staged()) {
      load();  // By every holder: a later one still has to make its own stream wait.
    } else if (!enabled_) {
      throw StateError("component '" + path_ +
                       "': is resident but not on the device; call enable() first");
    }
    ++holders_;
  }

  void leave() {
    if (stageable_ == nullptr) return;
    const std::lock_guard lock(mutex_);
    --holders_;
    if (staged() && holders_ == 0) offload();
  }

  // Like leave() without a throw. An error of the offload is reported and dropped.
  void leave_in_destructor() noexcept {
    const CancellationDeferral deferral;
    try {
      leave();
    } catch (...) {
      report_dropped("offload_in_destructor");
    }
  }

  // The body has failed: its error leaves, so nothing here may.
  void leave_after_failure() noexcept {
    if (stageable_ == nullptr) return;
    const CancellationDeferral deferral;
    const std::lock_guard lock(mutex_);
    --holders_;
    if (!staged()) return;
    if (holders_ == 0) offload_and_drop_error();
    // The stageable knows nothing of the body's failure: this release is always the guard's.
    release_cache();
  }

  // With mutex_ held.
  void load() {
    try {
      stageable_->load();
    } catch (...) {
      const CancellationDeferral deferral;
      if (holders_ == 0) offload_and_drop_error();
      release_cache_unless_handled();
      throw;
    }
  }

  // With mutex_ held.
  void offload() {
    try {
      stageable_->offload();
    } catch (...) {
      release_cache_unless_handled();
      throw;
    }
  }

  // With mutex_ held and cancellation deferred.
  void offload_and_drop_error() noexcept {
    try {
      stageable_->offload();
    } catch (...) {
      report_dropped("offload_after_failure");
    }
  }

  void release_cache_unless_handled() noexcept {
    if (!stageable_->handles_own_failures()) release_cache();
  }

  // The cache itself records a release that fails.
  void release_cache() noexcept {
    if (cache_ != nullptr) cache_->release_forced();
  }

  void report_dropped(std::string_view reason) noexcept {
    if (sink_ == nullptr) return;
    const std::string cause = current_exception_text();
    sink_->on_event({.kind = EventKind::kErrorDropped,
                     .device = stageable_->device(),
                     .component = path_,
                     .reason = reason,
                     .message = cause,
                     .bytes = 0,
                     .duration = {}});
  }

  const std::string path_;
  const std::shared_ptr<Stageable> stageable_;
  const Placement placement_;
  const std::shared_ptr<BoundedAllocatorCache> cache_;
  const std::shared_ptr<EventSink> sink_;
  mutable std::mutex mutex_;
  int holders_ = 0;
  bool enabled_ = false;
};

OFFSTAGE_NAMESPACE_END
