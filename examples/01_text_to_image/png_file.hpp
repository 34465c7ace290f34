// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "scene.hpp"

#include <filesystem>
#include <span>

namespace text_to_image {

/// Writes the pictures as one PNG: a grid as square as it gets, each pixel enlarged to 8 x 8. A
/// file that exists is replaced as a whole.
/// @throws std::runtime_error in one line if it cannot be written.
void write_png(const std::filesystem::path& path, std::span<const Picture> pictures);

/// To find out before the work rather than after it.
/// @throws std::runtime_error in one line if `write_png` to this path would fail.
void require_writable(const std::filesystem::path& path);

}  // namespace text_to_image
