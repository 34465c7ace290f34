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

// In this order: between a look and the making of a logger another thread could make it.
std::shared_ptr<spdlog::logger> make_or_find(const std::string& name) {
  try {
    return spdlog::stderr_logger_mt(name);
  } catch (const spdlog::spdlog_ex&) {
    if (auto found = spdlog::get(name)) return found;
    throw;  // There is another reason.
  }
}

}  // namespace

LogOutput::LogOutput(const std::string& name) : logger_(make_or_find(name)) {}

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
