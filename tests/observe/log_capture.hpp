// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace offstage {

/// A logger of spdlog, registered under a name for the lifetime of this object, whose lines can be
/// read. It includes nothing of spdlog: see src/observe/log_output.hpp.
class LogCapture {
 public:
  explicit LogCapture(const std::string& name);
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  ~LogCapture();

  /// Lines so far, each as "level: text".
  [[nodiscard]] std::vector<std::string> lines() const;

  /// From now on writing a line throws a std::exception, or something else.
  void break_down(bool standard = true);

  /// The threshold of all loggers, those to come included; "info" is spdlog's own.
  static void set_level_of_all(const std::string& level);

  /// Whether spdlog registers the loggers that it makes.
  static void set_automatic_registration(bool automatic);

  /// The logger's own threshold, as spdlog spells it.
  [[nodiscard]] std::string level() const;

  [[nodiscard]] static bool is_registered(const std::string& name);
  static void forget(const std::string& name);

 private:
  struct State;
  std::string name_;
  std::shared_ptr<State> state_;
};

}  // namespace offstage
