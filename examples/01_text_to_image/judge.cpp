// SPDX-License-Identifier: Apache-2.0
#include "judge.hpp"

#include <algorithm>
#include <bitset>
#include <cmath>

namespace text_to_image {

namespace {

using Pixels = std::bitset<kPixels>;

const std::array<int, 3>& rgb_of(int colour) {
  return kColours[static_cast<std::size_t>(colour)].rgb;
}

double distance(const Picture& picture, std::size_t pixel, const std::array<int, 3>& colour) {
  double sum = 0;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const double difference =
        static_cast<double>(picture[channel * kPixels + pixel]) - colour[channel];
    sum += difference * difference;
  }
  return sum;
}

double overlap(const Pixels& a, const Pixels& b) {
  const auto either = (a | b).count();
  return either == 0 ? 0 : static_cast<double>((a & b).count()) / static_cast<double>(either);
}

/// Largest difference of a channel's mean over `pixels` from `colour`.
double colour_error(const Picture& picture, const Pixels& pixels,
                    const std::array<int, 3>& colour) {
  double worst = 0;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    double sum = 0;
    for (std::size_t i = 0; i < kPixels; ++i) {
      if (pixels[i]) sum += picture[channel * kPixels + i];
    }
    worst = std::max(worst, std::abs(sum / static_cast<double>(pixels.count()) - colour[channel]));
  }
  return worst;
}

}  // namespace

Verdict judge(const Scene& scene, const Picture& picture) {
  const auto& shape_rgb = rgb_of(scene.colour);
  const auto& background_rgb = rgb_of(scene.background);
  Pixels seen;
  for (std::size_t i = 0; i < kPixels; ++i) {
    seen[i] = distance(picture, i, shape_rgb) <= distance(picture, i, background_rgb);
  }
  Verdict verdict;
  for (int shape = 0; shape < static_cast<int>(kShapes.size()); ++shape) {
    const Mask& mask = draw_mask(shape, scene.size, scene.position);
    Pixels ideal;
    Pixels covered;
    Pixels untouched;
    for (std::size_t i = 0; i < kPixels; ++i) {
      ideal[i] = mask[i] >= 0.5F;
      covered[i] = mask[i] == 1.0F;
      untouched[i] = mask[i] == 0.0F;
    }
    const double value = overlap(seen, ideal);
    if (shape == scene.shape) {
      verdict.overlap = value;
      verdict.colour_error = std::max(colour_error(picture, covered, shape_rgb),
                                      colour_error(picture, untouched, background_rgb));
    } else {
      verdict.best_other = std::max(verdict.best_other, value);
    }
  }
  return verdict;
}

}  // namespace text_to_image
