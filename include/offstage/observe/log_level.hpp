// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// How much an event matters in a log.

#include <offstage/base/config.hpp>

#include <cstdint>

OFFSTAGE_NAMESPACE_BEGIN

/// In the order of importance.
enum class LogLevel : std::uint8_t {
  kDebug,    ///< What goes right: every load, offload and decision.
  kWarning,  ///< Costs time or memory, or loses something; the program goes on.
  kError,    ///< Something stays broken.
  kOff,      ///< Of no event: for thresholds.
};

OFFSTAGE_NAMESPACE_END
