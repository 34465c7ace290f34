// SPDX-License-Identifier: Apache-2.0
#include "doctor.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

OFFSTAGE_NAMESPACE_BEGIN
namespace tools {

namespace {

nlohmann::json to_json(const std::map<std::string, Bytes>& figures) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, figure] : figures) {
    object[name] = {{"tensors", figure.tensors}, {"bytes", figure.bytes}};
  }
  return object;
}

std::string to_text(const std::string& title, const std::map<std::string, Bytes>& figures) {
  std::string text = title + "\n";
  for (const auto& [name, figure] : figures) {
    text +=
        "  " + name + std::string(std::max<std::size_t>(12, name.size() + 1) - name.size(), ' ') +
        std::to_string(figure.tensors) + " tensors, " + std::to_string(figure.bytes) + " bytes\n";
  }
  return text;
}

/// The first few findings of each kind, and how many more there are.
std::string to_text(const AuditReport& report, bool defects_only) {
  constexpr std::int64_t kShownAtMost = 5;
  std::string text;
  std::map<AuditKind, std::int64_t> count;
  for (const AuditFinding& finding : report.findings()) {
    AuditReport one;
    one.add(finding);
    if (defects_only && one.is_clean()) continue;
    if (++count[finding.kind] <= kShownAtMost) text += "  " + one.to_text();
  }
  for (const auto& [kind, number] : count) {
    if (number <= kShownAtMost) continue;
    text += "  " + std::string(offstage::to_string(kind)) + ": " +
            std::to_string(number - kShownAtMost) + " more, which --json lists\n";
  }
  return text;
}

}  // namespace

InputSpec parse_input(const std::string& text) {
  const auto refuse = [&]() -> InputSpec {
    throw UsageError("--input '" + text +
                     "' is not of the form 2x4x8x8:float32 (sizes, a colon, and one of float32, "
                     "float64, float16, bfloat16, int64, int32, bool)");
  };
  InputSpec spec;
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return refuse();
  spec.dtype = text.substr(colon + 1);
  static const std::vector<std::string> known = {"float32", "float64", "float16", "bfloat16",
                                                 "int64",   "int32",   "bool"};
  if (std::find(known.begin(), known.end(), spec.dtype) == known.end()) return refuse();
  const char* at = text.data();
  const char* const end = text.data() + colon;
  while (at != end) {
    std::int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 0 || size > (std::int64_t{1} << 31)) return refuse();
    spec.sizes.push_back(size);
    at = next;
    if (at == end) break;
    if (*at != 'x' || ++at == end) return refuse();
  }
  return spec;
}

std::string Diagnosis::to_text() const {
  std::string text = file + ", to run on " + device + "\n\n";
  text += tools::to_text("Bytes by kind", by_kind) + tools::to_text("Bytes by type", by_dtype);
  text += "\nFound in the archive\n";
  text += found.findings().empty() ? "  nothing\n" : tools::to_text(found, false);
  if (!refusal.empty()) {
    text += "\nCannot be staged\n  " + refusal + "\n";
  } else {
    text += "\nLeft after staging has prepared it\n";
    text += remaining.is_clean() ? "  no defects\n" : tools::to_text(remaining, true);
    text += "\nStaged cycles\n  inputs:";
    for (const std::string& input : inputs) text += " " + input;
    text += "\n  " + std::to_string(staged_bytes) + " bytes in " + std::to_string(chunks) +
            (chunks == 1 ? " copy\n  " : " copies\n  ");
    text += std::to_string(cycles) + " cycles gave the bytes of the CPU\n";
    if (!difference.empty()) text += "  then: " + difference + "\n";
  }
  text += std::string("\n") + (is_healthy() ? "Healthy.\n" : "Not healthy.\n");
  return text;
}

std::string Diagnosis::to_json() const {
  const nlohmann::json document = {{"file", file},
                                   {"device", device},
                                   {"healthy", is_healthy()},
                                   {"bytes_by_kind", tools::to_json(by_kind)},
                                   {"bytes_by_dtype", tools::to_json(by_dtype)},
                                   {"found", nlohmann::json::parse(found.to_json())},
                                   {"remaining", nlohmann::json::parse(remaining.to_json())},
                                   {"refusal", refusal},
                                   {"inputs", inputs},
                                   {"staged_bytes", staged_bytes},
                                   {"chunks", chunks},
                                   {"cycles", cycles},
                                   {"difference", difference}};
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tools
OFFSTAGE_NAMESPACE_END
