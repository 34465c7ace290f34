// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <string_view>

namespace text_to_image {

/// Where to run.
enum class DeviceKind { kCpu, kSimulated, kCuda };

struct DeviceChoice {
  DeviceKind kind = DeviceKind::kCpu;
  std::string note;  ///< One line for the user on why; empty where there is nothing to say.
};

/// What `--device` stands for here: "cpu", "sim", "cuda" (an error where there is none), or "auto"
/// (CUDA where there is a device and LibTorch's CUDA part can be loaded, else the simulation).
/// @throws std::runtime_error in one line.
[[nodiscard]] DeviceChoice choose_device(std::string_view wish);

}  // namespace text_to_image
