// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <offstage/base/config.hpp>

#include <string>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// The JSON pointer (RFC 6901) to member `key` of the document's root object.
[[nodiscard]] inline std::string json_pointer(std::string_view key) {
  std::string pointer = "/";
  for (const char letter : key) {
    if (letter == '~') {
      pointer += "~0";
    } else if (letter == '/') {
      pointer += "~1";
    } else {
      pointer += letter;
    }
  }
  return pointer;
}

OFFSTAGE_NAMESPACE_END
