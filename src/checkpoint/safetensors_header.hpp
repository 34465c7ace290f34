// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The JSON header of a safetensors file.

#include <offstage/base/config.hpp>
#include <offstage/checkpoint/safetensors_file.hpp>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// What is wrong with a header, and in which tensor ("" for none). The file's name is added
/// outside.
class HeaderError : public std::runtime_error {
 public:
  HeaderError(std::string tensor, const std::string& reason)
      : std::runtime_error(reason), tensor_(std::move(tensor)) {}
  [[nodiscard]] const std::string& tensor() const noexcept { return tensor_; }

 private:
  std::string tensor_;
};

struct SafetensorsHeader {
  /// In the order of their data; offsets count from the start of the data. Contiguous: the first
  /// begins at 0, each other where the one before ends.
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::int64_t data_bytes = 0;  ///< Where the last one ends.
};

/// Parses and checks a header.
/// @throws HeaderError
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view json);

}  // namespace detail
OFFSTAGE_NAMESPACE_END
