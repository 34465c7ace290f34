// SPDX-License-Identifier: Apache-2.0
#include "safetensors_header.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

using c10::ScalarType;

std::optional<ScalarType> dtype_of(std::string_view tag) {
  static const std::map<std::string_view, ScalarType> dtypes = {
      {"BOOL", ScalarType::Bool},
      {"U8", ScalarType::Byte},
      {"I8", ScalarType::Char},
      {"I16", ScalarType::Short},
      {"U16", ScalarType::UInt16},
      {"F16", ScalarType::Half},
      {"BF16", ScalarType::BFloat16},
      {"I32", ScalarType::Int},
      {"U32", ScalarType::UInt32},
      {"F32", ScalarType::Float},
      {"F64", ScalarType::Double},
      {"I64", ScalarType::Long},
      {"U64", ScalarType::UInt64},
      {"C64", ScalarType::ComplexFloat},
      {"F8_E4M3", ScalarType::Float8_e4m3fn},
      {"F8_E5M2", ScalarType::Float8_e5m2},
      {"F8_E8M0", ScalarType::Float8_e8m0fnu},
      {"F8_E4M3FNUZ", ScalarType::Float8_e4m3fnuz},
      {"F8_E5M2FNUZ", ScalarType::Float8_e5m2fnuz},
  };
  const auto found = dtypes.find(tag);
  return found == dtypes.end() ? std::nullopt : std::optional(found->second);
}

/// Takes the parser's calls and accepts exactly the one form a header may have:
/// {name: {"dtype": string, "shape": [...], "data_offsets": [a, b]}, "__metadata__": {...} | null}.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;

  bool start_object(std::size_t /*elements*/) override {
    if (place_ == Place::kStart) {
      place_ = Place::kNames;
    } else if (place_ == Place::kNames && name_ == "__metadata__") {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kNames) {
      place_ = Place::kFields;
      entry_ = {};
      entry_.name = name_;
      fields_.clear();
      numbers_.clear();
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kFields) {
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (!fields_.contains(field)) {
          throw HeaderError(name_, std::string("has no field '") + field + "'");
        }
      }
      entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::kNames ? Place::kEnd : Place::kNames;
    return true;
  }

  bool key(string_t& text) override {
    if (place_ == Place::kMetadata) {
      if (metadata.contains(text)) throw HeaderError("", "metadata '" + text + "' comes twice");
      metadata_key_ = text;
    } else if (place_ == Place::kFields) {
      if (text != "dtype" && text != "shape" && text != "data_offsets") {
        throw HeaderError(name_, "has an unknown field '" + text + "'");
      }
      if (!fields_.insert(text).second) {
        throw HeaderError(name_, "field '" + text + "' comes twice");
      }
      field_ = text;
    } else {
      if (text.empty()) throw HeaderError("", "a tensor has an empty name");
      if (!names_.insert(text).second) throw HeaderError(text, "the name comes twice");
      name_ = text;
    }
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    if (place_ != Place::kFields || field_ == "dtype") unexpected("an array");
    place_ = Place::kNumbers;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    place_ = Place::kFields;
    if (field_ == "shape") {
      entry_.shape = numbers_;
    } else {
      if (numbers_.size() != 2) throw HeaderError(name_, "data_offsets must be two numbers");
      if (numbers_[1] < numbers_[0]) throw HeaderError(name_, "ends before it begins");
      entry_.offset = numbers_[0];
      entry_.bytes = numbers_[1] - numbers_[0];
    }
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kNumbers) unexpected("a number");
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      throw HeaderError(name_, field_ + ": " + std::to_string(value) + " does not fit 63 bits");
    }
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      metadata[metadata_key_] = text;
    } else if (place_ == Place::kFields && field_ == "dtype") {
      const auto dtype = dtype_of(text);
      if (!dtype) throw HeaderError(name_, "unknown dtype '" + text + "'");
      entry_.dtype = *dtype;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool null() override {
    if (place_ != Place::kNames || name_ != "__metadata__") unexpected("null");
    return true;
  }
  bool boolean(bool /*value*/) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t /*value*/) override {
    return unexpected("a negative number");
  }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return unexpected("a number that is not a whole one, or too large");
  }
  bool binary(binary_t& /*value*/) override { return unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    throw HeaderError("", "the header is not JSON: error at its byte " + std::to_string(position));
  }

 private:
  enum class Place { kStart, kNames, kMetadata, kFields, kNumbers, kEnd };

  bool unexpected(const std::string& what) const {
    if (place_ == Place::kStart) throw HeaderError("", "the header is not an object but " + what);
    if (place_ == Place::kMetadata) throw HeaderError("", "metadata must be strings, not " + what);
    const bool in_field = place_ == Place::kFields || place_ == Place::kNumbers;
    throw HeaderError(name_, in_field ? field_ + " must not be or hold " + what
                                      : "must be described by an object, not by " + what);
  }

  Place place_ = Place::kStart;
  std::string name_;
  std::string field_;
  std::string metadata_key_;
  std::set<std::string> names_;
  std::set<std::string> fields_;
  std::vector<std::int64_t> numbers_;
  SafetensorsEntry entry_;
};

/// The bytes that shape and dtype ask for must be those between the offsets.
void check_size(const SafetensorsEntry& entry) {
  auto bytes = static_cast<std::int64_t>(c10::elementSize(entry.dtype));
  bool empty = false;
  for (const std::int64_t size : entry.shape) {
    // Counted with 1 for 0: LibTorch's strides of an empty tensor are products of the others.
    empty = empty || size == 0;
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) {
      throw HeaderError(entry.name, "its shape has more bytes than 63 bits can count");
    }
  }
  if (empty) bytes = 0;
  if (bytes != entry.bytes) {
    throw HeaderError(entry.name, "its shape and dtype need " + std::to_string(bytes) +
                                      " bytes, its offsets span " + std::to_string(entry.bytes));
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json) {
  if (json.find('\0') != std::string_view::npos) {
    throw HeaderError("", "the header holds a NUL byte");  // It would end the text for the parser.
  }
  if (!json.starts_with('{')) throw HeaderError("", "the header does not begin with '{'");
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(json, &reader)) throw HeaderError("", "the header is not JSON");

  SafetensorsHeader header{std::move(reader.entries), std::move(reader.metadata), 0};
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  for (const SafetensorsEntry& entry : header.entries) {
    check_size(entry);
    if (entry.offset != header.data_bytes) {
      throw HeaderError(entry.name, "begins at byte " + std::to_string(entry.offset) +
                                        " of the data, where " + std::to_string(header.data_bytes) +
                                        " was expected (a hole or an overlap)");
    }
    header.data_bytes += entry.bytes;
  }
  return header;
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
