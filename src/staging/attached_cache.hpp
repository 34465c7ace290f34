// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What becomes of the device memory that a component leaves to the allocator.

#include <offstage/base/config.hpp>
#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// The cache that a component is attached to, and its entry in the ledger there. Without a cache
/// every release is made. Not thread-safe: its owner serialises the calls.
class AttachedCache {
 public:
  /// Both must outlive this object.
  AttachedCache(const DeviceContext& context, const std::string& component) noexcept
      : context_(context), component_(component) {}

  /// Attaches `bytes` bytes to a cache, or detaches with null; the same one again changes nothing.
  /// @throws InvalidArgument if the cache is of another device; nothing was changed.
  void set(std::shared_ptr<BoundedAllocatorCache> cache, std::int64_t bytes) {
    if (cache != nullptr && cache->device() != context_.device()) {
      throw InvalidArgument("component '" + component_ + "': the cache is of " +
                            cache->device().str() + ", the component of " +
                            context_.device().str());
    }
    if (cache == cache_) return;
    StagedBytesToken entry;
    if (cache != nullptr) entry = cache->attach(bytes);
    entry_ = std::move(entry);
    cache_ = std::move(cache);
  }

  /// The component has become larger or smaller. Smaller never throws.
  void resize(std::int64_t bytes) {
    if (cache_ != nullptr) entry_.resize(bytes);
  }

  void release_if_needed() {
    if (cache_ != nullptr) {
      cache_->release_if_needed();
    } else if (context_.telemetry() != nullptr) {
      context_.telemetry()->release_cached(context_.device());
    }
  }

  /// Follows an error, and must not replace it.
  void release_forced() noexcept {
    if (cache_ != nullptr) {
      cache_->release_forced();
      return;
    }
    if (context_.telemetry() == nullptr) return;
    try {
      context_.telemetry()->release_cached(context_.device());
    } catch (...) {
      if (context_.sink() == nullptr) return;
      const std::string cause = current_exception_text();
      context_.sink()->on_event({.kind = EventKind::kReleaseFailed,
                                 .device = context_.device(),
                                 .component = component_,
                                 .message = cause});
    }
  }

 private:
  const DeviceContext& context_;
  const std::string& component_;
  std::shared_ptr<BoundedAllocatorCache> cache_;
  StagedBytesToken entry_;  // Attached to nothing if cache_ is null.
};

}  // namespace detail
OFFSTAGE_NAMESPACE_END
