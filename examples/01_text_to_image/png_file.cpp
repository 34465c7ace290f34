// SPDX-License-Identifier: Apache-2.0
#include "png_file.hpp"

#include <png.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace text_to_image {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kEnlarge = 8;
constexpr std::size_t kTile = kSide * kEnlarge;
constexpr std::size_t kGap = 8;  // pixels between tiles and around them

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw std::runtime_error("cannot write '" + path.string() + "': " + reason);
}

/// The path itself, or what a symbolic link points at. Only ordinary files are ever replaced.
fs::path file_behind(const fs::path& path) {
  std::error_code error;
  fs::path target = path;
  for (int links = 0; links < 40 && fs::is_symlink(target, error); ++links) {
    target =
        target.parent_path() / fs::read_symlink(target, error);  // An absolute one replaces all.
    if (error) fail(path, error.message());
  }
  const fs::file_status status = fs::status(target, error);
  if (status.type() == fs::file_type::directory) fail(path, "it is a folder");
  if (fs::exists(status) && status.type() != fs::file_type::regular) {
    fail(path, "it is no ordinary file");
  }
  return target;
}

/// A new, empty file beside the target, which nobody else has.
fs::path draft_beside(const fs::path& target) {
  std::string name = target.string() + ".XXXXXX";
  const int file = ::mkstemp(name.data());
  if (file < 0) fail(target, std::strerror(errno));
  ::fchmod(file, 0644);
  ::close(file);
  return name;
}

}  // namespace

void write_png(const fs::path& path, std::span<const Picture> pictures) {
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
  const fs::path target = file_behind(path);
  const fs::path draft = draft_beside(target);
  if (png_image_write_to_file(&image, draft.c_str(), 0, pixels.data(), 0, nullptr) == 0) {
    const std::string reason = image.message;
    std::error_code ignored;
    fs::remove(draft, ignored);
    fail(path, reason);
  }
  std::error_code error;
  fs::rename(draft, target, error);
  if (error) fail(path, error.message());
}

void require_writable(const fs::path& path) {
  std::error_code ignored;
  fs::remove(draft_beside(file_behind(path)), ignored);
}

}  // namespace text_to_image
