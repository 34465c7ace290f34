// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The run: the same pictures with all components resident and with staged ones, and what it cost.

#include "device_choice.hpp"
#include "pipeline.hpp"
#include "report.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace text_to_image {

struct Settings {
  Request request;
  std::filesystem::path weights;
  DeviceChoice device;
  std::optional<std::int64_t> capacity;  ///< Of the simulated memory, in bytes. Empty: the least
                                         ///< that the staged pipeline works in.
  offstage::ComponentPolicy policy;
  std::string retention = "fixed";  ///< "fixed", "never" or "always".
  bool verify = false;              ///< Make the masters unreadable while the components run.
};

struct Outcome {
  RunReport report;
  std::vector<Picture> pictures;
};

/// @throws std::runtime_error in one line: a capacity that is too small (the least that works is
///         named), one given for a device that is not simulated, or pictures that differ.
[[nodiscard]] Outcome demonstrate(const Settings& settings);

}  // namespace text_to_image
