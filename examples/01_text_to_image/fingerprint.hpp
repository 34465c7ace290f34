// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "scene.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace text_to_image {

/// SHA-256 (FIPS 180-4) in hexadecimal.
[[nodiscard]] std::string sha256(std::span<const std::uint8_t> bytes);

/// SHA-256 of the pictures' bytes: row by row, red green blue.
[[nodiscard]] std::string fingerprint(std::span<const Picture> pictures);

}  // namespace text_to_image
