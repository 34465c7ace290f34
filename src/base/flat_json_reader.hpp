// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <offstage/base/config.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <exception>
#include <set>
#include <string>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// Reads a JSON object whose values are no objects and no arrays, token by token, and throws at the
/// first wrong one. The first array or inner object ends the reading, however deep it goes on.
class FlatJsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Json = nlohmann::json;

  void read(std::string_view text) {
    // The parser takes a zero byte for the end of the text.
    if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
      refuse("valid JSON", "byte " + std::to_string(zero + 1) + ": a zero byte");
    }
    Json::sax_parse(text.begin(), text.end(), this, Json::input_format_t::json, /*strict=*/true);
  }

  bool null() override { return take(nullptr, "null"); }
  bool boolean(bool value) override { return take(value, value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override {
    return take(value, "the number " + std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return take(value, "the number " + std::to_string(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    // The parser's way out for whole numbers of more than 64 bits.
    const bool is_whole = text.find_first_not_of("-0123456789") == std::string::npos;
    return take(is_whole ? Json() : Json(value), "the number " + cut(text));
  }
  bool string(string_t& value) override { return take(value, "the string " + printed(value)); }
  bool binary(binary_t& /*value*/) override { refuse(expected_value(), "binary data"); }
  bool start_array(std::size_t /*elements*/) override { refuse(expected_value(), "an array"); }
  bool end_array() override { return true; }
  bool start_object(std::size_t /*elements*/) override {
    if (in_object_) refuse(expected_value(), "an object");
    in_object_ = true;
    return true;
  }
  bool end_object() override { return true; }
  bool key(string_t& value) override {
    key_ = value;
    has_key_ = true;
    if (!keys_.insert(value).second) refuse("each key once", "the key again");
    return true;
  }
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) refuse(expected_value(), "the number " + cut(last_token));
    // What nlohmann says begins with "[json.exception...] parse error at line ..., column ...: ".
    std::string cause = error.what();
    if (const auto end = cause.find("] "); end != std::string::npos) cause.erase(0, end + 2);
    refuse("valid JSON", "byte " + std::to_string(position) + ": " + cause);
  }

  /// As JSON, and cut: a document may hold megabytes.
  static std::string printed(const std::string& text) {
    if (text.size() > kMaxBytes) return "of " + std::to_string(text.size()) + " bytes";
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 protected:
  [[noreturn]] void refuse(const std::string& expected, const std::string& found) const {
    std::rethrow_exception(error(expected, found));
  }
  [[nodiscard]] bool in_object() const noexcept { return in_object_; }
  [[nodiscard]] bool has_key() const noexcept { return has_key_; }
  [[nodiscard]] const std::string& key() const noexcept { return key_; }

 private:
  static constexpr std::size_t kMaxBytes = 64;

  /// The value of `key()`: null, a boolean, a number or a string; null as well for a whole number
  /// of more than 64 bits.
  /// @param found  What it is, for an error.
  virtual void take_member(const Json& value, const std::string& found) = 0;
  /// A value that stands outside the object.
  virtual void take_document(const Json& /*value*/, const std::string& found) {
    refuse(expected_value(), found);
  }
  [[nodiscard]] virtual std::string expected_value() const = 0;
  /// About the value of `key()` or the key itself if `has_key()`, else about the document.
  [[nodiscard]] virtual std::exception_ptr error(const std::string& expected,
                                                 const std::string& found) const = 0;

  bool take(const Json& value, const std::string& found) {
    if (in_object_) {
      take_member(value, found);
      has_key_ = false;
    } else {
      take_document(value, found);
    }
    return true;
  }

  static std::string cut(const std::string& number) {
    return number.size() <= kMaxBytes ? number : number.substr(0, kMaxBytes) + "...";
  }

  std::set<std::string> keys_;
  std::string key_;
  bool in_object_ = false;
  bool has_key_ = false;
};

}  // namespace detail
OFFSTAGE_NAMESPACE_END
