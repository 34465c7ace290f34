// SPDX-License-Identifier: Apache-2.0
#include "scene.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace text_to_image {

namespace {

constexpr int kSamples = 8;                             // along each edge of a pixel
constexpr std::array<double, 2> kRadius = {7.0, 10.5};  // small, large, in pixels
constexpr double kOffset = 5.0;                         // of a corner position from the middle

/// A point of the plane seen from the shape's middle, in units of its radius; y points down.
struct Point {
  double x;
  double y;
};

/// Inside the polygon: an odd number of its edges lies to the right.
template <std::size_t N>
bool inside_polygon(const std::array<Point, N>& corners, Point p) {
  bool inside = false;
  for (std::size_t i = 0, j = N - 1; i < N; j = i++) {
    const Point a = corners[i];
    const Point b = corners[j];
    if ((a.y > p.y) != (b.y > p.y) && p.x < a.x + (p.y - a.y) / (b.y - a.y) * (b.x - a.x)) {
      inside = !inside;
    }
  }
  return inside;
}

std::array<Point, 10> star_corners() {
  std::array<Point, 10> corners{};
  for (std::size_t i = 0; i < corners.size(); ++i) {
    const double angle = -std::numbers::pi / 2 + static_cast<double>(i) * std::numbers::pi / 5;
    const double radius = i % 2 == 0 ? 1.04 : 0.45;
    corners[i] = {radius * std::cos(angle), radius * std::sin(angle)};
  }
  return corners;
}

bool covers(std::string_view shape, Point p) {
  static constexpr std::array<Point, 3> kTriangle = {{{0, -1}, {1, 0.95}, {-1, 0.95}}};
  static const std::array<Point, 10> star = star_corners();
  if (shape == "circle") return p.x * p.x + p.y * p.y <= 1;
  if (shape == "square") return std::max(std::abs(p.x), std::abs(p.y)) <= 0.95;
  if (shape == "triangle") return inside_polygon(kTriangle, p);
  if (shape == "diamond") return std::abs(p.x) + std::abs(p.y) <= 1.05;
  if (shape == "star") return inside_polygon(star, p);
  const double near = std::min(std::abs(p.x), std::abs(p.y));  // cross
  const double far = std::max(std::abs(p.x), std::abs(p.y));
  return near <= 0.3 && far <= 1;
}

Point middle_of(std::string_view position) {
  const double middle = kSide / 2.0;
  Point p{middle, middle};
  if (position.find("left") != std::string_view::npos) p.x -= kOffset;
  if (position.find("right") != std::string_view::npos) p.x += kOffset;
  if (position.find("top") != std::string_view::npos) p.y -= kOffset;
  if (position.find("bottom") != std::string_view::npos) p.y += kOffset;
  return p;
}

template <class List>
int count_of(const List& list) {
  return static_cast<int>(list.size());
}

Mask sampled_mask(int shape, int size, int position) {
  const Point middle = middle_of(kPositions[static_cast<std::size_t>(position)]);
  const double radius = kRadius[static_cast<std::size_t>(size)];
  const std::string_view name = kShapes[static_cast<std::size_t>(shape)];
  Mask mask{};
  for (int row = 0; row < kSide; ++row) {
    for (int column = 0; column < kSide; ++column) {
      int hits = 0;
      for (int i = 0; i < kSamples * kSamples; ++i) {
        const double x = column + (i % kSamples + 0.5) / kSamples;
        const double y = row + (i / kSamples + 0.5) / kSamples;
        hits += covers(name, {(x - middle.x) / radius, (y - middle.y) / radius}) ? 1 : 0;
      }
      mask[static_cast<std::size_t>(row * kSide + column)] =
          static_cast<float>(hits) / (kSamples * kSamples);
    }
  }
  return mask;
}

template <class Visit>
void for_each_combination(Visit visit) {
  for (int shape = 0; shape < count_of(kShapes); ++shape) {
    for (int colour = 0; colour < count_of(kColours); ++colour) {
      for (int size = 0; size < count_of(kSizes); ++size) {
        for (int position = 0; position < count_of(kPositions); ++position) {
          visit(Scene{shape, colour, size, position, 0});
        }
      }
    }
  }
}

std::string_view name_of(int colour) {
  return kColours[static_cast<std::size_t>(colour)].name;
}

}  // namespace

const Mask& draw_mask(int shape, int size, int position) {
  static const std::vector<Mask> masks = [] {
    std::vector<Mask> all;
    for (int a = 0; a < count_of(kShapes); ++a) {
      for (int b = 0; b < count_of(kSizes); ++b) {
        for (int c = 0; c < count_of(kPositions); ++c) all.push_back(sampled_mask(a, b, c));
      }
    }
    return all;
  }();
  const int place = (shape * count_of(kSizes) + size) * count_of(kPositions) + position;
  return masks[static_cast<std::size_t>(place)];
}

Picture draw(const Scene& scene) {
  const Mask& mask = draw_mask(scene.shape, scene.size, scene.position);
  const auto& shape = kColours[static_cast<std::size_t>(scene.colour)].rgb;
  const auto& background = kColours[static_cast<std::size_t>(scene.background)].rgb;
  Picture picture{};
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::size_t i = 0; i < kPixels; ++i) {
      picture[channel * kPixels + i] = mask[i] * static_cast<float>(shape[channel]) +
                                       (1 - mask[i]) * static_cast<float>(background[channel]);
    }
  }
  return picture;
}

bool is_held_out(const Scene& scene) noexcept {
  return (scene.shape + 2 * scene.colour + scene.position + 3 * scene.size) % 5 == 0;
}

std::vector<Scene> all_scenes() {
  std::vector<Scene> scenes;
  for_each_combination([&](Scene scene) {
    for (int background = 0; background < count_of(kColours); ++background) {
      scene.background = background;
      if (background != scene.colour) scenes.push_back(scene);
    }
  });
  return scenes;
}

std::vector<Scene> all_combinations() {
  std::vector<Scene> scenes;
  const int colours = count_of(kColours);
  for_each_combination([&](Scene scene) {
    const int step = static_cast<int>(scenes.size()) % (colours - 1) + 1;
    scene.background = (scene.colour + step) % colours;
    scenes.push_back(scene);
  });
  return scenes;
}

std::string describe(const Scene& scene) {
  std::string text = "a ";
  text += kSizes[static_cast<std::size_t>(scene.size)];
  text += ' ';
  text += name_of(scene.colour);
  text += ' ';
  text += kShapes[static_cast<std::size_t>(scene.shape)];
  text += " on a ";
  text += name_of(scene.background);
  text += " background";
  const std::string_view position = kPositions[static_cast<std::size_t>(scene.position)];
  text += position == "center" ? " in the " : " at the ";
  text += position;
  return text;
}

}  // namespace text_to_image
