// SPDX-License-Identifier: Apache-2.0
#include "log_output.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>

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

// One at a time, or two sinks of one name would each make a logger.
std::shared_ptr<spdlog::logger> find_or_make(const std::string& name) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (auto found = spdlog::get(name)) return found;
  auto made =
      std::make_shared<spdlog::logger>(name, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  spdlog::initialize_logger(made);  // With the program's levels, pattern and error handler.
  // Unless the program has switched it off, that has registered it.
  if (spdlog::get(name) == nullptr) spdlog::register_logger(made);
  return made;
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
void LogOutput::write(LogLevel level, std::string_view line) {
  logger_->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
