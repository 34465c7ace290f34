// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What a cache remembers between two decisions.

#include <offstage/base/config.hpp>

#include <cstdint>

OFFSTAGE_NAMESPACE_BEGIN

/// What a retention policy decides from besides the figures. Held by the cache, not by the policy,
/// which therefore stays a pure function.
struct RetentionState {
  /// Bytes of the components that are attached at the moment.
  std::int64_t staged_bytes = 0;
  /// The most that was found cached, or what the policy made of it; 0 at first, and again once the
  /// last staged byte is detached.
  std::int64_t observed_peak = 0;

  friend bool operator==(const RetentionState&, const RetentionState&) = default;
};

OFFSTAGE_NAMESPACE_END
