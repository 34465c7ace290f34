// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The words of the one warning about figures that cannot be read.

#include <offstage/base/config.hpp>
#include <offstage/base/exception_text.hpp>

#include <new>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// The cause, and what it costs. Never throws: without memory, the cause alone.
/// @pre As for `current_exception_text`.
[[nodiscard]] inline std::string telemetry_warning() noexcept {
  std::string text = current_exception_text();
  try {
    text += "; every decision will release the cache until it is cured";
  } catch (const std::bad_alloc&) {
    return text;
  }
  return text;
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
