// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What the simulated accelerator's race checker found.

#include <offstage/base/config.hpp>
#include <offstage/base/error.hpp>

#include <cstdint>
#include <string>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing {

/// What is wrong with a use of memory.
enum class RaceKind : std::uint8_t {
  kUnordered,     ///< Two tasks use the same bytes, one writes, and nothing orders them.
  kUseAfterFree,  ///< The block was given back before the task was queued.
  kNeverWritten,  ///< The task reads bytes that nothing has written since they were allocated.
  kNotAllocated,  ///< No block of the device is or was there.
};

/// The stable spelling of a kind: "unordered", "use_after_free", ...
[[nodiscard]] std::string_view to_string(RaceKind kind) noexcept;

/// One of the tasks of a report.
struct RaceTask {
  std::string name;          ///< "aten::addmm", "copy to device", "free", ...
  std::string stream;        ///< "sim:0 stream 3", "host".
  std::uint64_t number = 0;  ///< Its place among the tasks of the stream, from 1 on.
  bool writes = false;       ///< What it does with the bytes of the report.
};

/// One finding, made when its second task was queued.
struct RaceReport {
  RaceKind kind = RaceKind::kUnordered;
  RaceTask first;            ///< The earlier task; without a name if there is none.
  RaceTask second;           ///< The one that was being queued.
  std::uintptr_t begin = 0;  ///< The bytes [begin, end) that both use.
  std::uintptr_t end = 0;
  std::string text;  ///< All of it in words, with what is missing.
};

/// What the checker does with a finding.
enum class RaceAction : std::uint8_t {
  kThrow,   ///< Throw RaceError from the call that queues the task, which is not queued.
  kRecord,  ///< Keep it in `Simulator::races()` and go on. A task whose memory is not there is not
            ///< run; the next synchronisation throws `c10::AcceleratorError`.
  kAbort,   ///< Print it and end the program: for a debugger.
  kIgnore,  ///< Check nothing.
};

/// Thrown by the call that queued the second task; by the next synchronisation outside of clean-up
/// (`CancellationDeferral`) if that call cannot throw (a free), at the latest by `reset()`.
class OFFSTAGE_API RaceError : public Error {
 public:
  explicit RaceError(RaceReport report) : Error(report.text), report_(std::move(report)) {}
  ~RaceError() override;

  [[nodiscard]] const RaceReport& report() const noexcept { return report_; }

 private:
  RaceReport report_;
};

}  // namespace testing
OFFSTAGE_NAMESPACE_END
