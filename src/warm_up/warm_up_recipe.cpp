// SPDX-License-Identifier: Apache-2.0
#include "../base/flat_json_reader.hpp"

#include <offstage/base/error.hpp>
#include <offstage/base/number_text.hpp>
#include <offstage/warm_up/warm_up_recipe.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

struct WholeNumber {
  const char* name;
  std::optional<std::int64_t> WarmUpRecipe::*member;
  std::int64_t least;
};
constexpr std::array<WholeNumber, 4> kWholeNumbers = {{
    {"height", &WarmUpRecipe::height, 1},
    {"width", &WarmUpRecipe::width, 1},
    {"num_inference_steps", &WarmUpRecipe::num_inference_steps, 1},
    {"num_frames", &WarmUpRecipe::num_frames, 0},
}};
constexpr const char* kGuidance = "guidance_scale";

InvalidArgument error_at(const std::string& place, const std::string& expected,
                         const std::string& found) {
  return InvalidArgument("warm-up recipe: " + place + ": expected " + expected + ", found " +
                         found);
}

/// Printed, if it is short: a document may hold megabytes.
std::string place_of(const std::string& key) {
  constexpr std::size_t kMaxBytes = 64;
  return key.size() <= kMaxBytes ? "'" + key + "'"
                                 : "the key of " + std::to_string(key.size()) + " bytes";
}

[[noreturn]] void refuse(const std::string& key, const std::string& expected,
                         const std::string& found) {
  throw error_at(place_of(key), expected, found);
}

std::string whole_number_from(std::int64_t least) {
  return "a whole number in [" + std::to_string(least) + ", " +
         std::to_string(std::numeric_limits<std::int64_t>::max()) + "]";
}

bool is_int64(const nlohmann::json& value) {
  return value.is_number_integer() &&
         (!value.is_number_unsigned() ||
          value.get<std::uint64_t>() <=
              static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
}

const WholeNumber* find_whole_number(const std::string& key) {
  const auto* const found = std::find_if(kWholeNumbers.begin(), kWholeNumbers.end(),
                                         [&key](const auto& each) { return key == each.name; });
  return found == kWholeNumbers.end() ? nullptr : found;
}

class RecipeReader final : public detail::FlatJsonReader {
 public:
  WarmUpRecipe take() { return std::move(recipe_); }

 private:
  void take_member(const Json& value, const std::string& found) override {
    if (const WholeNumber* const number = find_whole_number(key())) {
      if (!is_int64(value)) refuse(expected_value(), found);
      recipe_.*number->member = value.get<std::int64_t>();
    } else if (key() == kGuidance) {
      if (!value.is_number()) refuse(expected_value(), found);
      recipe_.guidance_scale = value.get<double>();
    } else if (value.is_boolean()) {
      recipe_.extra_arguments.emplace(key(), value.get<bool>());
    } else if (value.is_string()) {
      recipe_.extra_arguments.emplace(key(), value.get<std::string>());
    } else if (value.is_number_float()) {
      recipe_.extra_arguments.emplace(key(), value.get<double>());
    } else if (is_int64(value)) {
      recipe_.extra_arguments.emplace(key(), value.get<std::int64_t>());
    } else {
      const bool is_number = found.starts_with("the number");
      refuse(is_number ? "a whole number of 64 bits" : expected_value(), found);
    }
  }
  void take_document(const Json& value, const std::string& found) override {
    if (!value.is_null()) refuse(expected_value(), found);
  }
  [[nodiscard]] std::string expected_value() const override {
    if (!in_object()) return "an object";
    if (const WholeNumber* const number = find_whole_number(key())) {
      return whole_number_from(number->least);
    }
    if (key() == kGuidance) return "a finite number";
    return "a boolean, a number or a string";
  }
  [[nodiscard]] std::exception_ptr error(const std::string& expected,
                                         const std::string& found) const override {
    return std::make_exception_ptr(
        error_at(has_key() ? place_of(key()) : "the document", expected, found));
  }

  WarmUpRecipe recipe_;
};

}  // namespace

bool WarmUpRecipe::is_empty() const noexcept {
  return !height && !width && !num_inference_steps && !num_frames && !guidance_scale &&
         extra_arguments.empty();
}

void WarmUpRecipe::check() const {
  for (const WholeNumber& number : kWholeNumbers) {
    const auto& value = this->*number.member;
    if (value && *value < number.least) {
      refuse(number.name, whole_number_from(number.least), std::to_string(*value));
    }
  }
  if (guidance_scale && !std::isfinite(*guidance_scale)) {
    refuse(kGuidance, "a finite number", number_text(*guidance_scale));
  }
  for (const auto& [name, value] : extra_arguments) {
    if (name.empty()) refuse(name, "a name for each extra argument", "an empty one");
    if (name == kGuidance || find_whole_number(name) != nullptr) {
      refuse(name, "the sampling parameter itself", "an extra argument of its name");
    }
    const auto* const number = std::get_if<double>(&value);
    if (number != nullptr && !std::isfinite(*number)) {
      refuse(name, "a finite number", number_text(*number));
    }
  }
}

WarmUpRecipe WarmUpRecipe::parse(std::string_view json) {
  RecipeReader reader;
  reader.read(json);
  WarmUpRecipe recipe = reader.take();
  recipe.check();
  return recipe;
}

std::string WarmUpRecipe::to_json() const {
  check();
  nlohmann::json document = nlohmann::json::object();
  for (const WholeNumber& number : kWholeNumbers) {
    if (const auto& value = this->*number.member) document[number.name] = *value;
  }
  if (guidance_scale) document[kGuidance] = *guidance_scale;
  for (const auto& [name, value] : extra_arguments) {
    std::visit([&document, &name = name](const auto& held) { document[name] = held; }, value);
    try {
      static_cast<void>(nlohmann::json(name).dump());
      static_cast<void>(document[name].dump());
    } catch (const nlohmann::json::exception&) {
      throw error_at(detail::FlatJsonReader::printed(name), "text in UTF-8", "other bytes");
    }
  }
  return document.dump();
}

OFFSTAGE_NAMESPACE_END
