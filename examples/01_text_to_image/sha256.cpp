// SPDX-License-Identifier: Apache-2.0
#include "sha256.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <vector>

namespace text_to_image {

namespace {

using Words = std::array<std::uint32_t, 64>;

/// The first 32 bits of the fractional part of the roots of the first 64 primes: the constants of
/// the standard are the cube roots (64) and the square roots (the first 8).
template <class Root>
Words fractions_of_roots(Root root) {
  Words words{};
  std::uint32_t candidate = 1;
  for (std::uint32_t& word : words) {
    bool prime = false;
    while (!prime) {
      ++candidate;
      prime = true;
      for (std::uint32_t divisor = 2; divisor * divisor <= candidate; ++divisor) {
        prime = prime && candidate % divisor != 0;
      }
    }
    const long double value = root(static_cast<long double>(candidate));
    word = static_cast<std::uint32_t>((value - std::floor(value)) * 4294967296.0L);
  }
  return words;
}

void absorb(std::array<std::uint32_t, 8>& state, const std::uint8_t* block) {
  static const Words constants = fractions_of_roots([](long double x) { return std::cbrt(x); });
  Words w{};
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 4; ++j) w[i] = w[i] << 8 | block[4 * i + j];
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t a = w[i - 15];
    const std::uint32_t b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                ((e & f) ^ (~e & g)) + constants[i] + w[i];
    const std::uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<std::uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += add[i];
}

}  // namespace

std::string sha256(std::span<const std::uint8_t> bytes) {
  std::vector<std::uint8_t> message(bytes.begin(), bytes.end());
  message.push_back(0x80);
  while (message.size() % 64 != 56) message.push_back(0);
  const auto bits = static_cast<std::uint64_t>(bytes.size()) * 8;
  for (int shift = 56; shift >= 0; shift -= 8) {
    message.push_back(static_cast<std::uint8_t>(bits >> shift));
  }
  const Words roots = fractions_of_roots([](long double x) { return std::sqrt(x); });
  std::array<std::uint32_t, 8> state{};
  for (std::size_t i = 0; i < 8; ++i) state[i] = roots[i];
  for (std::size_t i = 0; i < message.size(); i += 64) absorb(state, message.data() + i);
  std::string text;
  for (const std::uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
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
