// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// How many pictures are right.

#include "pipeline.hpp"

#include <functional>

namespace text_to_image {

struct Score {
  int right = 0;
  int total = 0;

  [[nodiscard]] double percent() const noexcept { return total == 0 ? 0 : 100.0 * right / total; }
};

struct Evaluation {
  Score held_out;      ///< The 96 combinations that the trainer never saw.
  Score seen;          ///< As many that it saw.
  Score without_text;  ///< The first again, with zeros in place of the prompts.

  /// At least 97 % of both kinds, and less than 25 % without text.
  [[nodiscard]] bool passed() const noexcept {
    return held_out.percent() >= 97 && seen.percent() >= 97 && without_text.percent() < 25;
  }
};

/// The two lists of distinct combinations, 96 each.
[[nodiscard]] std::vector<Scene> held_out_scenes();
[[nodiscard]] std::vector<Scene> seen_scenes();

/// @param like      Steps, guidance and seed; the rest is filled in.
/// @param progress  Is told how many of how many pictures are drawn; may be empty.
[[nodiscard]] Evaluation evaluate(Pipeline& pipeline, const Request& like,
                                  const std::function<void(int, int)>& progress);

}  // namespace text_to_image
