// SPDX-License-Identifier: Apache-2.0
#include "fingerprint.hpp"
#include "guarded_host_memory.hpp"
#include "options.hpp"
#include "png_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace text_to_image {
namespace {

std::string sha256_of(const std::string& text) {
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  return sha256(bytes);
}

TEST(Sha256Test, GivesThePublishedValues) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(ParseBytesTest, ReadsNumbersWithAndWithoutUnit) {
  EXPECT_EQ(parse_bytes("28311552"), 28311552);
  EXPECT_EQ(parse_bytes("27MiB"), 28311552);
  EXPECT_EQ(parse_bytes("27 MiB"), 28311552);
  EXPECT_EQ(parse_bytes("1.5KiB"), 1536);
  EXPECT_EQ(parse_bytes("2GiB"), 2147483648);
}

TEST(ParseBytesTest, RefusesEverythingElse) {
  for (const char* text : {"", "MiB", "27MB", "27MiBx", "-1", "0", "nan", "1e30", "x"}) {
    EXPECT_THROW(static_cast<void>(parse_bytes(text)), std::invalid_argument) << text;
  }
}

TEST(PngFileTest, WritesAGridThatReadsBack) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("text_to_image_" + std::to_string(::getpid()) + ".png");
  const std::vector<Picture> pictures(3, draw({.shape = 1, .colour = 0}));
  write_png(path, pictures);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_file(&image, path.c_str()), 0);
  image.format = PNG_FORMAT_RGB;
  std::vector<std::uint8_t> pixels(PNG_IMAGE_SIZE(image));
  ASSERT_NE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr), 0);
  std::filesystem::remove(path);
  EXPECT_EQ(image.width, 2U * (256 + 8) + 8);  // three pictures: two by two
  EXPECT_EQ(image.height, image.width);
  const std::size_t middle = 3 * ((8 + 128) * image.width + 8 + 128);
  EXPECT_EQ(pixels[middle], kColours[0].rgb[0]);
  EXPECT_EQ(pixels[middle + 1], kColours[0].rgb[1]);
}

TEST(PngFileTest, SaysWhyAFileCannotBeWritten) {
  EXPECT_THROW(write_png("/nonexistent/x.png", {}), std::runtime_error);
  EXPECT_THROW(require_writable("/nonexistent/x.png"), std::runtime_error);
  EXPECT_THROW(require_writable("/tmp"), std::runtime_error);
  EXPECT_THROW(require_writable("/dev/null"), std::runtime_error) << "it would be replaced";
}

TEST(PngFileTest, WritesThroughALinkAndLeavesItsNeighboursAlone) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("png_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto link = folder / "link.png";
  const auto neighbour = folder / "link.png.tmp";
  std::filesystem::create_symlink(folder / "target.png", link);
  std::ofstream(neighbour) << "mine";
  require_writable(link);
  write_png(link, std::vector<Picture>(1));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_GT(std::filesystem::file_size(folder / "target.png"), 0U);
  EXPECT_EQ(std::filesystem::file_size(neighbour), 4U);
  std::filesystem::remove_all(folder);
}

class GuardedHostMemoryTest : public ::testing::Test {
 protected:
  void TearDown() override {
    memory_.allow();
    memory_.free(data_, 4096);
  }

  GuardedHostMemory memory_{std::make_shared<offstage::PageableHostMemory>()};
  volatile char* bytes() { return static_cast<volatile char*>(data_); }
  void* data_ = memory_.allocate(4096);
};

TEST_F(GuardedHostMemoryTest, IsOrdinaryMemoryUnlessForbidden) {
  bytes()[0] = 7;
  memory_.forbid();
  memory_.allow();
  EXPECT_EQ(bytes()[0], 7);
  EXPECT_EQ(memory_.bytes(), 4096);
}

using GuardedHostMemoryDeathTest = GuardedHostMemoryTest;

TEST_F(GuardedHostMemoryDeathTest, EndsTheProgramWhenForbiddenMemoryIsRead) {
  EXPECT_EXIT(
      {
        memory_.forbid();
        static_cast<void>(bytes()[0]);
      },
      ::testing::ExitedWithCode(GuardedHostMemory::kExitCode), "a host master was accessed");
}

}  // namespace
}  // namespace text_to_image
