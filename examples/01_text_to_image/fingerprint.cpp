// SPDX-License-Identifier: Apache-2.0
#include "fingerprint.hpp"

#include <array>
#include <openssl/evp.h>
#include <stdexcept>
#include <vector>

namespace text_to_image {

std::string sha256(std::span<const std::uint8_t> bytes) {
  std::array<std::uint8_t, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("SHA-256 is not available in this build of OpenSSL");
  }
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

std::string fingerprint(std::span<const Picture> pictures) {
  std::vector<std::uint8_t> bytes;
  for (const Picture& picture : pictures) {
    for (std::size_t i = 0; i < kPixels; ++i) {
      for (std::size_t channel = 0; channel < 3; ++channel) {
        bytes.push_back(static_cast<std::uint8_t>(picture[channel * kPixels + i]));
      }
    }
  }
  return sha256(bytes);
}

}  // namespace text_to_image
