// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What the program found out, and its two forms: a text and a JSON document.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace text_to_image {

/// What bringing a component to the device cost.
struct MoveCounts {
  std::int64_t allocations = 0;  ///< Asked of the device's allocator.
  std::int64_t copies = 0;       ///< From host to device.
  std::int64_t bytes = 0;        ///< In these copies.
  std::int64_t host_waits = 0;   ///< Times that the host had to wait, the offload's included.
};

struct PartReport {
  std::string path;
  std::string residence;         ///< "staged" or "resident".
  std::string placement_reason;  ///< Why it is placed so.
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;  ///< Of its tensors.
  std::int64_t loads = 0;
  std::int64_t retries = 0;    ///< Loads that ran out of memory first and then fitted in pieces.
  MoveCounts moved;            ///< Loads and offloads of the run, the work itself apart.
  std::string cache_decision;  ///< "kept" or "released"; empty if none was taken.
  std::string cache_reason;
  std::int64_t cache_bytes = 0;            ///< In the allocator's cache when it was decided.
  std::optional<std::int64_t> peak_bytes;  ///< Of device memory while it was at work.
  std::optional<MoveCounts> by_tensor;     ///< The same with one move for each tensor,
  std::optional<MoveCounts> by_storage;    ///< and with one for each storage.
};

struct RunReport {
  std::string device;              ///< "cpu", "simulated accelerator (sim:0)", ...
  std::string note;                ///< On the choice of the device; may be empty.
  bool counted_by_device = false;  ///< Counts are the simulator's own; else the stagers'.
  std::string retention;
  std::string output;
  std::vector<std::string> prompts;
  std::optional<std::int64_t> capacity;
  std::optional<std::int64_t> resident_peak;  ///< Without a limit.
  std::string resident_error;                 ///< Within the capacity; empty if it fitted.
  std::optional<std::int64_t> staged_peak;
  std::string resident_sha256;  ///< Empty on the CPU.
  std::string sha256;           ///< Of the pictures that were written.
  bool verified = false;        ///< Masters were unreadable while the components ran.
  std::vector<PartReport> parts;
};

[[nodiscard]] std::string to_text(const RunReport& report);
[[nodiscard]] std::string to_json(const RunReport& report);

/// "7.3 MiB".
[[nodiscard]] std::string mebibytes(std::int64_t bytes);

}  // namespace text_to_image
