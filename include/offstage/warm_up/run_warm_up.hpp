// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Runs a pipeline before its first request.

#include <offstage/base/config.hpp>
#include <offstage/base/error.hpp>
#include <offstage/warm_up/warm_up_recipe.hpp>
#include <offstage/warm_up/warm_up_request.hpp>

#include <concepts>
#include <cstdint>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN

/// What can be warmed up: `warm_up(request)` generates as for a user, and drops the result.
template <class Pipeline>
concept WarmUpPipeline = requires(Pipeline& pipeline, const WarmUpRequest& request) {
  pipeline.warm_up(request);
};

namespace detail {

/// Frames of the generic run, by the pipeline's own `dummy_run_num_frames()`; 0 opts out of it.
template <class Pipeline>
std::int64_t generic_frames(Pipeline& pipeline) {
  if constexpr (requires { pipeline.dummy_run_num_frames(); }) {
    static_assert(std::integral<decltype(pipeline.dummy_run_num_frames())>,
                  "dummy_run_num_frames() must return a whole number; 0 opts out");
    return static_cast<std::int64_t>(pipeline.dummy_run_num_frames());
  } else {
    return 0;
  }
}

}  // namespace detail

/// Warms a pipeline up. One whose `dummy_run_num_frames()` is not 0 gets the generic request, and
/// the recipe is not used; any other gets the request of the recipe, and none if that is empty.
///
/// Not for use beside requests: whatever learns from the warm-up should see it alone.
///
/// @param rounds  How often the request is made; at least 1. The second finds in the allocator's
///                cache what the components of the first have left, all beside each other: only
///                then a learned bound has seen its peak.
/// @returns whether anything was run.
/// @throws InvalidArgument for rounds, a recipe or frames that are out of range, before anything is
///         run; and what the pipeline throws.
template <WarmUpPipeline Pipeline>
bool run_warm_up(Pipeline& pipeline, const WarmUpRecipe& recipe,
                 const WarmUpDefaults& defaults = {}, int rounds = 2) {
  if (rounds < 1) {
    throw InvalidArgument("warm-up: rounds must be at least 1, got " + std::to_string(rounds));
  }
  recipe.check();
  const std::int64_t frames = detail::generic_frames(pipeline);
  if (frames == 0 && recipe.is_empty()) return false;
  const WarmUpRequest request = frames != 0 ? make_generic_warm_up_request(frames, defaults)
                                            : make_warm_up_request(recipe, defaults);
  for (int round = 0; round < rounds; ++round) pipeline.warm_up(request);
  return true;
}

OFFSTAGE_NAMESPACE_END
