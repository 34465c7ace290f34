// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/base/number_text.hpp>
#include <offstage/warm_up/warm_up_request.hpp>

#include <cmath>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

WarmUpRequest make_default_request(const WarmUpDefaults& defaults) {
  if (defaults.height < 0 || defaults.width < 0) {
    throw InvalidArgument("warm-up: default sizes must not be negative, got height " +
                          std::to_string(defaults.height) + ", width " +
                          std::to_string(defaults.width));
  }
  if (defaults.guidance_scale && !std::isfinite(*defaults.guidance_scale)) {
    throw InvalidArgument("warm-up: the default guidance_scale must be finite, got " +
                          number_text(*defaults.guidance_scale));
  }
  WarmUpRequest request;
  request.height = defaults.height;
  request.width = defaults.width;
  request.guidance_scale = defaults.guidance_scale;
  request.extra_arguments = {{"cfg_text_scale", 1.0}, {"cfg_img_scale", 1.0}};
  return request;
}

}  // namespace

WarmUpRequest make_warm_up_request(const WarmUpRecipe& recipe, const WarmUpDefaults& defaults) {
  recipe.check();
  WarmUpRequest request = make_default_request(defaults);
  request.height = recipe.height.value_or(request.height);
  request.width = recipe.width.value_or(request.width);
  request.num_inference_steps = recipe.num_inference_steps.value_or(1);
  request.num_frames = recipe.num_frames.value_or(0);
  if (recipe.guidance_scale) request.guidance_scale = recipe.guidance_scale;
  for (const auto& [name, value] : recipe.extra_arguments) {
    request.extra_arguments.insert_or_assign(name, value);
  }
  return request;
}

WarmUpRequest make_generic_warm_up_request(std::int64_t num_frames,
                                           const WarmUpDefaults& defaults) {
  if (num_frames < 1) {
    throw InvalidArgument("warm-up: the frames of a generic run must be at least 1, got " +
                          std::to_string(num_frames));
  }
  WarmUpRequest request = make_default_request(defaults);
  request.num_frames = num_frames;
  return request;
}

OFFSTAGE_NAMESPACE_END
