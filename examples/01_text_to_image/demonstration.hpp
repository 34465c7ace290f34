// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The run: the same pictures with all components resident and with staged ones, and what it cost.

#include "device_choice.hpp"
#include "pipeline.hpp"
#include "report.hpp"

#include <offstage/testing/fault_script.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace text_to_image {

/// A call of the staged run that the simulated accelerator ignores.
struct Sabotage {
  offstage::testing::FaultPoint point;
  std::int64_t number;  ///< From 1 on.
};

struct Settings {
  Request request;
  std::filesystem::path weights;
  DeviceChoice device;
  std::optional<std::int64_t> capacity;  ///< Of the simulated memory, in bytes. Empty: the least
                                         ///< that the staged pipeline works in.
  offstage::ComponentPolicy policy;
  std::string retention = "fixed";  ///< "fixed", "never" or "always".
  std::optional<Sabotage> sabotage;
  bool verify = false;  ///< Make the masters unreadable while the components run.
};

struct Outcome {
  RunReport report;
  std::vector<Picture> pictures;
};

/// @throws offstage::testing::RaceError with the report, if a sabotage makes a race.
/// @throws std::runtime_error in one line: a capacity that is too small (the least that works is
///         named), one given for a device that is not simulated, or pictures that differ.
[[nodiscard]] Outcome demonstrate(const Settings& settings);

}  // namespace text_to_image
