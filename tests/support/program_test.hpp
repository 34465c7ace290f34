// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace offstage {

struct ProgramResult {
  int code = -1;  ///< -1 if a signal ended it.
  std::string out;
  std::string error;
};

/// Has a folder of its own, and runs programs.
class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return folder_ / name; }

  /// @param command  For the shell, whose error output is not redirected.
  [[nodiscard]] ProgramResult run_command(const std::string& command) const {
    const std::filesystem::path error = file("error.txt");
    ProgramResult result;
    FILE* const pipe = ::popen((command + " 2> " + error.string()).c_str(), "r");
    std::array<char, 4096> buffer{};
    while (const auto got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
      result.out.append(buffer.data(), got);
    }
    const int status = ::pclose(pipe);
    if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
    std::ifstream stream(error);
    result.error.assign(std::istreambuf_iterator<char>(stream), {});
    return result;
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("offstage_program_" + std::to_string(::getpid()));
};

}  // namespace offstage
