// SPDX-License-Identifier: Apache-2.0
#pragma once

// The only way to spdlog. This header and its source include nothing of LibTorch, whose fmt would
// shadow the one that spdlog was built with.

#include <offstage/base/config.hpp>
#include <offstage/observe/log_level.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace spdlog {
class logger;
}

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// A logger of spdlog, found by its name or made.
class LogOutput {
 public:
  explicit LogOutput(const std::string& name);

  [[nodiscard]] bool wants(LogLevel level) const noexcept;
  void set_level(LogLevel level) noexcept;
  /// @throws what the logger lets through: spdlog handles std::exception only.
  void write(LogLevel level, std::string_view line);

 private:
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace detail
OFFSTAGE_NAMESPACE_END
