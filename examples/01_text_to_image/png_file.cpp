// SPDX-License-Identifier: Apache-2.0
#include "png_file.hpp"

#include <png.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace text_to_image {

namespace {

constexpr std::size_t kEnlarge = 8;
constexpr std::size_t kTile = kSide * kEnlarge;
constexpr std::size_t kGap = 8;  // pixels between tiles and around them

}  // namespace

void write_png(const std::filesystem::path& path, std::span<const Picture> pictures) {
  const auto columns = static_cast<std::size_t>(
      std::ceil(std::sqrt(static_cast<double>(std::max<std::size_t>(pictures.size(), 1)))));
  const std::size_t rows = (std::max<std::size_t>(pictures.size(), 1) + columns - 1) / columns;
  const std::size_t width = columns * (kTile + kGap) + kGap;
  const std::size_t height = rows * (kTile + kGap) + kGap;
  std::vector<std::uint8_t> pixels(3 * width * height, 128);
  for (std::size_t tile = 0; tile < pictures.size(); ++tile) {
    const std::size_t left = kGap + tile % columns * (kTile + kGap);
    const std::size_t top = kGap + tile / columns * (kTile + kGap);
    for (std::size_t y = 0; y < kTile; ++y) {
      for (std::size_t x = 0; x < kTile; ++x) {
        const std::size_t source = y / kEnlarge * kSide + x / kEnlarge;
        for (std::size_t channel = 0; channel < 3; ++channel) {
          pixels[3 * ((top + y) * width + left + x) + channel] =
              static_cast<std::uint8_t>(pictures[tile][channel * kPixels + source]);
        }
      }
    }
  }

  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_RGB;
  const std::string draft = path.string() + ".tmp";
  if (png_image_write_to_file(&image, draft.c_str(), 0, pixels.data(), 0, nullptr) == 0) {
    const std::string reason = image.message;
    std::error_code ignored;
    std::filesystem::remove(draft, ignored);
    throw std::runtime_error("cannot write '" + path.string() + "': " + reason);
  }
  std::error_code error;
  std::filesystem::rename(draft, path, error);
  if (error) throw std::runtime_error("cannot write '" + path.string() + "': " + error.message());
}

void require_writable(const std::filesystem::path& path) {
  const std::string draft = path.string() + ".tmp";
  const std::string reason = std::filesystem::is_directory(path) ? "it is a folder"
                             : std::ofstream(draft).is_open()    ? ""
                                                                 : std::strerror(errno);
  std::error_code ignored;
  std::filesystem::remove(draft, ignored);
  if (!reason.empty()) throw std::runtime_error("cannot write '" + path.string() + "': " + reason);
}

}  // namespace text_to_image
