// SPDX-License-Identifier: Apache-2.0
#include "json_pointer.hpp"

#include <offstage/base/error.hpp>
#include <offstage/components/component_policy.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

using Json = nlohmann::json;

/// Reads the object token by token and throws at the first wrong one. Nothing nests: the first
/// array or inner object ends the reading, however deep it goes on.
class PolicyReader final : public nlohmann::json_sax<Json> {
 public:
  std::map<std::string, bool> take() { return std::move(entries_); }

  bool null() override {
    if (in_object_) refuse_value("null");
    return true;
  }
  bool boolean(bool value) override {
    if (!in_object_) refuse_value(value ? "true" : "false");
    entries_.emplace(key_, value);
    has_key_ = false;
    return true;
  }
  bool number_integer(number_integer_t value) override {
    refuse_value("the number " + std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    refuse_value("the number " + std::to_string(value));
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    refuse_value("the number " + text);
  }
  bool string(string_t& value) override { refuse_value("the string " + printed(value)); }
  bool binary(binary_t& /*value*/) override { refuse_value("binary data"); }
  bool start_array(std::size_t /*elements*/) override { refuse_value("an array"); }
  bool end_array() override { return true; }
  bool start_object(std::size_t /*elements*/) override {
    if (in_object_) refuse_value("an object");
    in_object_ = true;
    return true;
  }
  bool end_object() override { return true; }
  bool key(string_t& value) override {
    if (value.empty()) throw PolicyError("/", "a component path or 'default'", "an empty key");
    if (entries_.count(value) != 0) {
      throw PolicyError(json_pointer(value), "each key once", "the key again");
    }
    key_ = value;
    has_key_ = true;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) refuse_value("the number " + last_token);
    // What nlohmann says begins with "[json.exception...] parse error at line ..., column ...: ".
    std::string cause = error.what();
    if (const auto end = cause.find("] "); end != std::string::npos) cause.erase(0, end + 2);
    throw PolicyError(pointer(), "valid JSON", "byte " + std::to_string(position) + ": " + cause);
  }

 private:
  [[nodiscard]] std::string pointer() const { return has_key_ ? json_pointer(key_) : ""; }

  [[noreturn]] void refuse_value(const std::string& found) const {
    throw PolicyError(pointer(), in_object_ ? "true or false" : "an object of component paths",
                      found);
  }

  // As JSON, and cut: a document may hold megabytes.
  static std::string printed(const std::string& text) {
    constexpr std::size_t kMaxBytes = 64;
    if (text.size() <= kMaxBytes) return Json(text).dump();
    return "of " + std::to_string(text.size()) + " bytes";
  }

  std::map<std::string, bool> entries_;
  std::string key_;
  bool in_object_ = false;
  bool has_key_ = false;
};

}  // namespace

ComponentPolicy ComponentPolicy::parse(std::string_view json) {
  // The parser takes a zero byte for the end of the text.
  if (const std::size_t zero = json.find('\0'); zero != std::string_view::npos) {
    throw PolicyError("", "valid JSON", "byte " + std::to_string(zero + 1) + ": a zero byte");
  }
  PolicyReader reader;
  Json::sax_parse(json.begin(), json.end(), &reader, Json::input_format_t::json, /*strict=*/true);
  return from_map(reader.take());
}

OFFSTAGE_NAMESPACE_END
