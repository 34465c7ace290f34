// SPDX-License-Identifier: Apache-2.0
#include "evaluation.hpp"
#include "judge.hpp"

#include <algorithm>
#include <iterator>

namespace text_to_image {

namespace {

constexpr std::size_t kBatch = 48;

template <class Predicate>
std::vector<Scene> combinations_where(Predicate predicate) {
  std::vector<Scene> found;
  std::ranges::copy_if(all_combinations(), std::back_inserter(found), predicate);
  return found;
}

}  // namespace

std::vector<Scene> held_out_scenes() {
  return combinations_where(is_held_out);
}

std::vector<Scene> seen_scenes() {
  // One position further: the same rule with remainder 1, and so as evenly spread.
  return combinations_where([](Scene scene) {
    scene.position += 4;
    return is_held_out(scene);
  });
}

Evaluation evaluate(Pipeline& pipeline, const Request& like,
                    const std::function<void(int, int)>& progress) {
  const std::vector<Scene> held_out = held_out_scenes();
  const std::vector<Scene> seen = seen_scenes();
  const auto total = static_cast<int>(2 * held_out.size() + seen.size());
  int drawn = 0;
  Request request = like;
  const auto score = [&](const std::vector<Scene>& scenes, bool without_text) {
    Score result;
    for (std::size_t first = 0; first < scenes.size(); first += kBatch) {
      const auto begin = scenes.begin() + static_cast<std::ptrdiff_t>(first);
      request.scenes.assign(
          begin, begin + static_cast<std::ptrdiff_t>(std::min(kBatch, scenes.size() - first)));
      request.without_text = without_text;
      ++request.seed;
      const std::vector<Picture> pictures = pipeline.generate(request);
      for (std::size_t i = 0; i < pictures.size(); ++i) {
        result.right += judge(request.scenes[i], pictures[i]).right() ? 1 : 0;
        ++result.total;
        ++drawn;
      }
      if (progress) progress(drawn, total);
    }
    return result;
  };
  Evaluation evaluation;
  evaluation.held_out = score(held_out, false);
  evaluation.seen = score(seen, false);
  evaluation.without_text = score(held_out, true);
  return evaluation;
}

}  // namespace text_to_image
