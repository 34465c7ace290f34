// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace text_to_image {

/// The command line.
struct Options {
  std::vector<std::string> prompts;
  int steps = 20;
  double guidance = 3.0;
  std::uint64_t seed = 0;
  std::string device = "auto";
  std::string capacity;
  std::string sabotage;  ///< "drop-wait=3": what `--break` says.
  std::string policy;
  std::string retention = "fixed";
  std::string weights;
  std::string output = "text_to_image.png";
  int threads = 0;
  bool json = false;
  bool evaluate = false;
  bool verify = false;
};

/// Reads the command line. Prints help or an error itself.
/// @returns The exit code where the program is over already.
[[nodiscard]] std::optional<int> parse_options(int argc, char** argv, Options& options);

/// "28311552", "27MiB", "27 MiB", "1.5GiB".
/// @throws std::invalid_argument in one line.
[[nodiscard]] std::int64_t parse_bytes(std::string_view text);

}  // namespace text_to_image
