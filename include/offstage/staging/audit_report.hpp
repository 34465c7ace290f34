// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What staging would lose or cannot see, found before it does harm.

#include <offstage/base/config.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN

/// What an audit can find.
enum class AuditKind : std::uint8_t {
  kUnmanagedAlias,   ///< A tensor that is not managed shares memory with a managed one: once that
                     ///< one is staged, the alias keeps the old memory and the old values.
  kUnmanagedTensor,  ///< A tensor that the module computes with and that is not managed: it stays
                     ///< where it is when the module moves.
  kHiddenConstant,   ///< A tensor in a TorchScript graph, unknown to parameters and buffers.
  kDerivedConstant,  ///< A tensor that the executor of TorchScript would compute from constants at
                     ///< the first run and keep, whatever becomes of the constants.
  kBakedDevice,      ///< A device that a TorchScript graph names and that is not the target.
  kPackedWeights,    ///< Weights in a form that cannot be re-bound.
  kTiedTensor,       ///< One tensor, or one storage, under several paths. No defect.
};

/// The stable spelling of a kind: "unmanaged_alias", ...
[[nodiscard]] OFFSTAGE_API std::string_view to_string(AuditKind kind) noexcept;

/// One thing found.
struct AuditFinding {
  AuditKind kind = AuditKind::kUnmanagedAlias;
  std::string path;        ///< Of the tensor, or of the node in a graph.
  std::string message;     ///< For people: what it is, and what to do about it.
  std::int64_t bytes = 0;  ///< Of the tensor; 0 where there is none.
  friend bool operator==(const AuditFinding&, const AuditFinding&) = default;
};

/// Everything that one audit found, in the order of the tensors.
class OFFSTAGE_API AuditReport {
 public:
  void add(AuditFinding finding) { findings_.push_back(std::move(finding)); }
  void append(const AuditReport& other);

  [[nodiscard]] const std::vector<AuditFinding>& findings() const noexcept { return findings_; }
  /// True if nothing was found that can go wrong: `kTiedTensor` is no defect, and a hidden constant
  /// is none for a stager that lists it.
  [[nodiscard]] bool is_clean() const noexcept;
  [[nodiscard]] std::int64_t count(AuditKind kind) const noexcept;

  /// One line a finding: `unmanaged_alias 'decoder.weight': ...`. Empty if there is none.
  [[nodiscard]] std::string to_text() const;
  /// `[{"kind": ..., "path": ..., "message": ..., "bytes": ...}, ...]`
  [[nodiscard]] std::string to_json() const;

 private:
  std::vector<AuditFinding> findings_;
};

OFFSTAGE_NAMESPACE_END
