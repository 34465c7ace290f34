// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Numbers in error texts.

#include <offstage/base/config.hpp>

#include <array>
#include <charconv>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN

/// The shortest decimal text that reads back as `value`: a number just outside a range does not
/// look as if it were in it. "nan", "inf" and "-inf" where it is none.
[[nodiscard]] inline std::string number_text(double value) {
  std::array<char, 32> text{};  // The longest is "-2.2250738585072014e-308".
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

OFFSTAGE_NAMESPACE_END
