// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The request that warms a pipeline up.

#include <offstage/base/config.hpp>
#include <offstage/warm_up/warm_up_recipe.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// The id of every warm-up request, and of no other: queues, logs and billing tell it by that.
inline constexpr std::string_view kWarmUpRequestId = "offstage-warm-up";

/// True for the id of a warm-up request.
[[nodiscard]] constexpr bool is_dummy(std::string_view request_id) noexcept {
  return request_id == kWarmUpRequestId;
}

/// What the caller would use where a recipe says nothing.
struct WarmUpDefaults {
  std::int64_t height = 0;  ///< In pixels; 0: what the pipeline does without a size.
  std::int64_t width = 0;   ///< In pixels; 0: likewise.
  std::optional<double> guidance_scale = {};  ///< Absent: what the pipeline does without one.
};

/// A request of text only, for one output.
struct WarmUpRequest {
  std::string id = std::string(kWarmUpRequestId);
  std::string prompt = "dummy run";
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t num_inference_steps = 1;
  std::int64_t num_frames = 0;
  std::int64_t num_outputs = 1;
  std::optional<double> guidance_scale = {};
  /// Those of the recipe, over `cfg_text_scale` and `cfg_img_scale`, which are 1.0 without it.
  ExtraArguments extra_arguments = {};

  [[nodiscard]] bool is_dummy() const noexcept { return offstage::is_dummy(id); }
};

/// The request that a recipe asks for.
/// @throws InvalidArgument as `WarmUpRecipe::check()`, and for negative default sizes or a
///         default guidance that is not finite.
[[nodiscard]] WarmUpRequest make_warm_up_request(const WarmUpRecipe& recipe,
                                                 const WarmUpDefaults& defaults = {});

/// The request of a pipeline that any generation warms up: one step, and so many frames.
/// @throws InvalidArgument unless `num_frames` is at least 1; for negative default sizes or a
///         default guidance that is not finite.
[[nodiscard]] WarmUpRequest make_generic_warm_up_request(std::int64_t num_frames,
                                                         const WarmUpDefaults& defaults = {});

OFFSTAGE_NAMESPACE_END
