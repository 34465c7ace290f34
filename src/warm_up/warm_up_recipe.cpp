// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/warm_up/warm_up_recipe.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

using Json = nlohmann::json;

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

[[noreturn]] void refuse(const std::string& key, const std::string& expected,
                         const std::string& found) {
  throw InvalidArgument("warm-up recipe: " + (key.empty() ? "the document" : "'" + key + "'") +
                        ": expected " + expected + ", found " + found);
}

std::string at_least(std::int64_t least) {
  return "a whole number of at least " + std::to_string(least);
}

/// Cut: a document may hold megabytes.
std::string printed(const Json& value) {
  constexpr std::size_t kMaxBytes = 64;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMaxBytes) text = text.substr(0, kMaxBytes) + "...";
  return text;
}

std::int64_t whole_number(const std::string& key, const Json& value, std::int64_t least) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<std::uint64_t>() <=
                         static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (!fits || value.get<std::int64_t>() < least) refuse(key, at_least(least), printed(value));
  return value.get<std::int64_t>();
}

ExtraArgument extra_argument(const std::string& key, const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) {
    return whole_number(key, value, std::numeric_limits<std::int64_t>::min());
  }
  if (value.is_number_float()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  refuse(key, "a boolean, a number or a string", printed(value));
}

/// A parser's callback that refuses a key that comes twice in the outer object.
class KeysOnce {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 &&
        !keys_.insert({parsed.get<std::string>(), true}).second) {
      refuse(parsed.get<std::string>(), "each key once", "the key again");
    }
    return true;
  }

 private:
  std::map<std::string, bool> keys_;
};

Json parse_document(std::string_view json) {
  try {
    KeysOnce once;
    return Json::parse(json.begin(), json.end(),
                       [&once](int depth, Json::parse_event_t event, Json& parsed) {
                         return once(depth, event, parsed);
                       });
  } catch (const Json::exception& error) {
    std::string cause = error.what();
    if (const auto end = cause.find("] "); end != std::string::npos) cause.erase(0, end + 2);
    refuse("", "valid JSON", cause);
  }
}

}  // namespace

bool WarmUpRecipe::is_empty() const noexcept {
  return !height && !width && !num_inference_steps && !num_frames && !guidance_scale &&
         extra_arguments.empty();
}

void WarmUpRecipe::check() const {
  for (const WholeNumber& number : kWholeNumbers) {
    const auto& value = this->*number.member;
    if (value && *value < number.least) {
      refuse(number.name, at_least(number.least), std::to_string(*value));
    }
  }
  if (guidance_scale && !std::isfinite(*guidance_scale)) {
    refuse(kGuidance, "a finite number", std::to_string(*guidance_scale));
  }
  for (const auto& [name, value] : extra_arguments) {
    if (name.empty()) refuse("", "a name for each extra argument", "an empty one");
    bool is_sampling = name == kGuidance;
    for (const WholeNumber& number : kWholeNumbers) is_sampling |= name == number.name;
    if (is_sampling) refuse(name, "the sampling parameter itself", "an extra argument of its name");
    const auto* const number = std::get_if<double>(&value);
    if (number != nullptr && !std::isfinite(*number)) {
      refuse(name, "a finite number", std::to_string(*number));
    }
  }
}

WarmUpRecipe WarmUpRecipe::parse(std::string_view json) {
  const Json document = parse_document(json);
  WarmUpRecipe recipe;
  if (document.is_null()) return recipe;
  if (!document.is_object()) refuse("", "an object", printed(document));
  for (const auto& [key, value] : document.items()) {
    const auto* const number =
        std::find_if(kWholeNumbers.begin(), kWholeNumbers.end(),
                     [&key = key](const WholeNumber& each) { return key == each.name; });
    if (number != kWholeNumbers.end()) {
      recipe.*number->member = whole_number(key, value, number->least);
    } else if (key == kGuidance) {
      if (!value.is_number()) refuse(key, "a finite number", printed(value));
      recipe.guidance_scale = value.get<double>();
    } else {
      recipe.extra_arguments.emplace(key, extra_argument(key, value));
    }
  }
  recipe.check();
  return recipe;
}

std::string WarmUpRecipe::to_json() const {
  check();
  Json document = Json::object();
  for (const WholeNumber& number : kWholeNumbers) {
    if (const auto& value = this->*number.member) document[number.name] = *value;
  }
  if (guidance_scale) document[kGuidance] = *guidance_scale;
  for (const auto& [name, value] : extra_arguments) {
    std::visit([&document, &name = name](const auto& held) { document[name] = held; }, value);
  }
  try {
    return document.dump();
  } catch (const Json::exception& error) {
    refuse("", "text in UTF-8", error.what());
  }
}

OFFSTAGE_NAMESPACE_END
