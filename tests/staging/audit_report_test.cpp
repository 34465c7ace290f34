// SPDX-License-Identifier: Apache-2.0
#include <offstage/staging/audit_report.hpp>

#include <gtest/gtest.h>

namespace offstage {
namespace {

AuditReport report_of(AuditKind kind) {
  AuditReport report;
  report.add({kind, "a.weight", "what it is", 12});
  return report;
}

TEST(AuditReport, IsCleanWhenNothingWasFound) {
  EXPECT_TRUE(AuditReport().is_clean());
  EXPECT_EQ(AuditReport().to_text(), "");
  EXPECT_EQ(AuditReport().to_json(), "[]");
}

TEST(AuditReport, TiedTensorsAndListedConstantsAreNoDefects) {
  EXPECT_TRUE(report_of(AuditKind::kTiedTensor).is_clean());
  EXPECT_TRUE(report_of(AuditKind::kHiddenConstant).is_clean());
}

TEST(AuditReport, EverythingElseIsADefect) {
  for (const AuditKind kind :
       {AuditKind::kUnmanagedAlias, AuditKind::kUnmanagedTensor, AuditKind::kDerivedConstant,
        AuditKind::kBakedDevice, AuditKind::kPackedWeights}) {
    EXPECT_FALSE(report_of(kind).is_clean()) << to_string(kind);
  }
}

TEST(AuditReport, PrintsOneLineAFinding) {
  AuditReport report = report_of(AuditKind::kBakedDevice);
  report.append(report_of(AuditKind::kTiedTensor));
  EXPECT_EQ(report.to_text(),
            "baked_device 'a.weight': what it is\ntied_tensor 'a.weight': what it is\n");
  EXPECT_EQ(report.count(AuditKind::kTiedTensor), 1);
}

TEST(AuditReport, PrintsJson) {
  EXPECT_EQ(report_of(AuditKind::kHiddenConstant).to_json(), R"([
  {
    "bytes": 12,
    "kind": "hidden_constant",
    "message": "what it is",
    "path": "a.weight"
  }
])");
}

TEST(AuditReport, PrintsJsonForAPathThatIsNoUtf8) {
  AuditReport report;
  report.add({AuditKind::kTiedTensor, "\xff", "", 0});
  EXPECT_NE(report.to_json().find("\xef\xbf\xbd"), std::string::npos);
}

}  // namespace
}  // namespace offstage
