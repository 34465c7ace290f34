// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// A component's entry in the ledger of a cache.

#include <offstage/base/config.hpp>

#include <cstdint>
#include <memory>

OFFSTAGE_NAMESPACE_BEGIN

namespace detail {
class RetentionLedger;
}  // namespace detail

/// Counts a component's bytes in a cache's `RetentionState::staged_bytes` for as long as it lives.
/// When the sum comes down to 0, the cache forgets its peak: what the next pipeline needs is not
/// known. `BoundedAllocatorCache::attach` makes one; a default-constructed token counts nothing.
///
/// @par Threads
/// One token is used by one thread at a time; tokens of one cache may be used concurrently. No
/// member waits for a decision or a release of the cache.
/// @par Ownership
/// May outlive the cache.
class StagedBytesToken {
 public:
  StagedBytesToken() noexcept = default;
  StagedBytesToken(const StagedBytesToken&) = delete;
  StagedBytesToken& operator=(const StagedBytesToken&) = delete;
  StagedBytesToken(StagedBytesToken&& other) noexcept;
  /// Detaches what this token counted, after it took over the other.
  StagedBytesToken& operator=(StagedBytesToken&& other) noexcept;
  ~StagedBytesToken();

  /// The component has become larger or smaller.
  /// @throws InvalidArgument if `bytes` is negative, or if the ledger would exceed an int64; then
  ///         nothing was changed. Making a token smaller never throws.
  /// @throws StateError if the token is attached to nothing.
  void resize(std::int64_t bytes);

  /// Counts nothing from here on.
  void detach() noexcept;

  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool is_attached() const noexcept { return ledger_ != nullptr; }

 private:
  friend class BoundedAllocatorCache;
  StagedBytesToken(std::shared_ptr<detail::RetentionLedger> ledger, std::int64_t bytes);

  std::shared_ptr<detail::RetentionLedger> ledger_;
  std::int64_t bytes_ = 0;
};

OFFSTAGE_NAMESPACE_END
