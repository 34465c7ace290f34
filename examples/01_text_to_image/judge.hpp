// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Is a picture what the prompt asked for? Used by `--evaluate` and by its tests.

#include "scene.hpp"

namespace text_to_image {

/// What the judge saw.
struct Verdict {
  double overlap = 0;  ///< Intersection over union with the ideal mask, 0..1.
  double best_other =
      0;  ///< The same for the best of the five other shapes at that place and size.
  double colour_error = 0;  ///< Largest difference of a mean channel, shape or background, 0..255.

  /// Overlap >= 0.8 and above every other shape's, colours within 40 of 255.
  [[nodiscard]] bool right() const noexcept {
    return overlap >= 0.8 && overlap > best_other && colour_error <= 40;
  }
};

/// The picture's mask: the pixels nearer to the named shape colour than to the named background
/// colour. Ideal masks: the pixels that the shape covers by half or more. Mean colours are taken
/// over the pixels that the ideal shape covers wholly, and over those that it does not touch.
/// @param picture  Planes red, green, blue; channels 0..255.
[[nodiscard]] Verdict judge(const Scene& scene, const Picture& picture);

}  // namespace text_to_image
