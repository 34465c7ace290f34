// SPDX-License-Identifier: Apache-2.0
#include "log_output.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

std::shared_ptr<spdlog::logger> find_or_make(const std::string& name) {
  if (auto found = spdlog::get(name)) return found;
  try {
    return spdlog::stderr_logger_mt(name);
  } catch (const spdlog::spdlog_ex&) {
    // Another thread was faster, or there is another reason.
    if (auto found = spdlog::get(name)) return found;
    throw;
  }
}

}  // namespace

LogOutput::LogOutput(const std::string& name) : logger_(find_or_make(name)) {}

bool LogOutput::wants(LogLevel level) const noexcept {
  return logger_->should_log(to_spdlog(level));
}

void LogOutput::set_level(LogLevel level) noexcept {
  logger_->set_level(to_spdlog(level));
}

// The line is an argument and not the format: it may hold braces.
void LogOutput::write(LogLevel level, std::string_view line) noexcept {
  logger_->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
