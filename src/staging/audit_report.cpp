// SPDX-License-Identifier: Apache-2.0
#include <offstage/staging/audit_report.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

bool is_defect(AuditKind kind) noexcept {
  return kind != AuditKind::kTiedTensor && kind != AuditKind::kHiddenConstant;
}

}  // namespace

std::string_view to_string(AuditKind kind) noexcept {
  switch (kind) {
    case AuditKind::kUnmanagedAlias:
      return "unmanaged_alias";
    case AuditKind::kUnmanagedTensor:
      return "unmanaged_tensor";
    case AuditKind::kHiddenConstant:
      return "hidden_constant";
    case AuditKind::kDerivedConstant:
      return "derived_constant";
    case AuditKind::kBakedDevice:
      return "baked_device";
    case AuditKind::kPackedWeights:
      return "packed_weights";
    case AuditKind::kTiedTensor:
      return "tied_tensor";
  }
  return "unknown";
}

void AuditReport::append(const AuditReport& other) {
  findings_.insert(findings_.end(), other.findings_.begin(), other.findings_.end());
}

bool AuditReport::is_clean() const noexcept {
  return std::none_of(findings_.begin(), findings_.end(),
                      [](const AuditFinding& finding) { return is_defect(finding.kind); });
}

std::int64_t AuditReport::count(AuditKind kind) const noexcept {
  return std::count_if(findings_.begin(), findings_.end(),
                       [kind](const AuditFinding& finding) { return finding.kind == kind; });
}

std::string AuditReport::to_text() const {
  std::string text;
  for (const AuditFinding& finding : findings_) {
    text +=
        std::string(to_string(finding.kind)) + " '" + finding.path + "': " + finding.message + "\n";
  }
  return text;
}

std::string AuditReport::to_json() const {
  nlohmann::json list = nlohmann::json::array();
  for (const AuditFinding& finding : findings_) {
    list.push_back({{"kind", to_string(finding.kind)},
                    {"path", finding.path},
                    {"message", finding.message},
                    {"bytes", finding.bytes}});
  }
  // A path of a foreign archive may hold anything.
  return list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

OFFSTAGE_NAMESPACE_END
