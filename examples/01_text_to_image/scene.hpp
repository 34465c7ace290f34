// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The little world of the example: what a prompt can name, and how it looks when drawn by hand.
/// Plain C++, no tensors: the trainer draws its pictures with it and the judge its ideal masks.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace text_to_image {

inline constexpr int kSide = 32;                                    ///< Pixels along an edge.
inline constexpr std::size_t kPixels = std::size_t{kSide} * kSide;  ///< Pixels of a picture.

/// A colour with its name; channels are 0..255.
struct Colour {
  std::string_view name;
  std::array<int, 3> rgb;
};

inline constexpr std::array<std::string_view, 6> kShapes = {"circle",  "square", "triangle",
                                                            "diamond", "star",   "cross"};
inline constexpr std::array<Colour, 8> kColours = {{{"red", {215, 30, 35}},
                                                    {"green", {40, 160, 70}},
                                                    {"blue", {40, 80, 220}},
                                                    {"yellow", {240, 215, 50}},
                                                    {"purple", {140, 50, 190}},
                                                    {"orange", {240, 120, 20}},
                                                    {"white", {245, 245, 245}},
                                                    {"black", {20, 20, 20}}}};
inline constexpr std::array<std::string_view, 2> kSizes = {"small", "large"};
inline constexpr std::array<std::string_view, 5> kPositions = {"center", "top left", "top right",
                                                               "bottom left", "bottom right"};

/// One picture, named: indices into the lists above.
struct Scene {
  int shape = 0;
  int colour = 0;
  int size = 1;
  int position = 0;
  int background = 6;  ///< A colour too, never the shape's own.

  friend bool operator==(const Scene&, const Scene&) = default;
};

/// How much of each pixel the shape covers, 0..1, row by row (8 x 8 samples a pixel). All 60 masks
/// are drawn once; the reference stays valid.
using Mask = std::array<float, kPixels>;
[[nodiscard]] const Mask& draw_mask(int shape, int size, int position);

/// A picture as planes (red, green, blue), channels 0..255.
using Picture = std::array<float, 3 * kPixels>;
[[nodiscard]] Picture draw(const Scene& scene);

/// True where the trainer never sees (shape, colour, size, position), whatever the background:
/// (shape + 2 colour + position + 3 size) mod 5 == 0. That is 96 of the 480 combinations: one of
/// the five positions for each shape, colour and size, and so 16 for each shape, 12 for each
/// colour, 48 for each size, 18 to 20 for each position.
[[nodiscard]] bool is_held_out(const Scene& scene) noexcept;

/// All scenes with every background: 480 x 7.
[[nodiscard]] std::vector<Scene> all_scenes();

/// The 480 combinations of shape, colour, size and position, each on one background that a fixed
/// rule picks (no two neighbours on the same).
[[nodiscard]] std::vector<Scene> all_combinations();

/// "a small red circle on a blue background at the top left".
[[nodiscard]] std::string describe(const Scene& scene);

}  // namespace text_to_image
