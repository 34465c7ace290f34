// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Examines one TorchScript archive: what is in it, and whether it survives being staged.

#include <offstage/base/config.hpp>
#include <offstage/staging/audit_report.hpp>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace tools {

/// The file or an argument is at fault; the message is for the one who gave it.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// "2x4x8x8:float32"
struct InputSpec {
  std::vector<std::int64_t> sizes;
  std::string dtype;
};

/// @throws UsageError that says what was expected.
[[nodiscard]] InputSpec parse_input(const std::string& text);

struct DoctorOptions {
  std::string file;
  std::string inputs_entry = "inputs.pt";  ///< Extra file of the archive: a tuple of tensors.
  std::vector<InputSpec> inputs;           ///< Instead of that entry.
  std::uint64_t seed = 1;
  std::int64_t cycles = 100;
  bool rewrite_devices = false;
};

struct Bytes {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

struct Diagnosis {
  std::string file;
  std::string device;
  std::map<std::string, Bytes> by_kind;  ///< Tensors with several names count once.
  std::map<std::string, Bytes> by_dtype;
  AuditReport found;      ///< In the archive as it is.
  AuditReport remaining;  ///< After what staging does to it.
  std::string refusal;    ///< Why it cannot be staged; empty if it can.
  std::vector<std::string> inputs;
  std::int64_t cycles = 0;  ///< That ran, and gave the bytes of the CPU.
  std::string difference;   ///< What was wrong in the cycle after those; empty if nothing was.
  std::int64_t staged_bytes = 0;
  std::int64_t chunks = 0;

  [[nodiscard]] bool is_healthy() const {
    return refusal.empty() && difference.empty() && remaining.is_clean();
  }
  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] std::string to_json() const;
};

/// Installs the simulated accelerator in this process.
/// @throws UsageError if the archive or the inputs cannot be read, or the inputs do not fit.
[[nodiscard]] Diagnosis diagnose(const DoctorOptions& options);

}  // namespace tools
OFFSTAGE_NAMESPACE_END
