// SPDX-License-Identifier: Apache-2.0
#include "../base/flat_json_reader.hpp"
#include "json_pointer.hpp"

#include <offstage/base/error.hpp>
#include <offstage/components/component_policy.hpp>

#include <map>
#include <string>
#include <string_view>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

class PolicyReader final : public detail::FlatJsonReader {
 public:
  std::map<std::string, bool> take() { return std::move(entries_); }

 private:
  void take_member(const Json& value, const std::string& found) override {
    if (!value.is_boolean()) refuse(expected_value(), found);
    entries_.emplace(key(), value.get<bool>());
  }
  void take_document(const Json& value, const std::string& found) override {
    if (!value.is_null()) refuse(expected_value(), found);
  }
  [[nodiscard]] std::string expected_value() const override {
    return in_object() ? "true or false" : "an object of component paths";
  }
  [[nodiscard]] std::exception_ptr error(const std::string& expected,
                                         const std::string& found) const override {
    return std::make_exception_ptr(
        PolicyError(has_key() ? json_pointer(key()) : "", expected, found));
  }

  std::map<std::string, bool> entries_;
};

}  // namespace

ComponentPolicy ComponentPolicy::parse(std::string_view json) {
  PolicyReader reader;
  reader.read(json);
  return from_map(reader.take());
}

OFFSTAGE_NAMESPACE_END
