// SPDX-License-Identifier: Apache-2.0
#include "log_output.hpp"

#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>
#include <offstage/observe/log_sink.hpp>

#include <array>
#include <cstdio>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

// Control characters as "\\x0a" and so on: one event is one line, whatever texts it carries.
void append_text(std::string& line, std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '\n') {
      line += "\\n";
    } else if (code < 0x20 || code == 0x7f) {
      line += "\\x";
      line += kDigits[code / 16];
      line += kDigits[code % 16];
    } else {
      line += letter;
    }
  }
}

void append(std::string& line, std::string_view name, std::string_view value) {
  line += ' ';
  line += name;
  line += '=';
  append_text(line, value);
}

std::string microseconds(std::chrono::nanoseconds duration) {
  std::array<char, 32> text{};
  const int length =
      std::snprintf(text.data(), text.size(), "%.1f", static_cast<double>(duration.count()) / 1e3);
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace

LogSink::LogSink(const std::string& logger) {
  if (logger.empty()) throw InvalidArgument("log sink: logger must not be empty");
  output_ = std::make_unique<detail::LogOutput>(logger);
}

LogSink::~LogSink() = default;

void LogSink::on_event(const Event& event) noexcept {
  const LogLevel level = level_of(event.kind);
  if (!output_->wants(level)) return;
  const CancellationDeferral deferral;
  try {
    output_->write(level, to_line(event));
  } catch (...) {
    // Out of memory, or a logger that throws: what cannot be logged must not fail the program.
  }
}

void LogSink::set_level(LogLevel level) noexcept {
  output_->set_level(level);
}

std::string to_line(const Event& event) {
  std::string line(to_string(event.kind));
  if (!event.device.is_cpu()) append(line, "device", event.device.str());
  if (!event.component.empty()) append(line, "component", event.component);
  if (!event.reason.empty()) append(line, "reason", event.reason);
  if (event.bytes != 0) append(line, "bytes", std::to_string(event.bytes));
  if (event.duration.count() != 0) append(line, "us", microseconds(event.duration));
  for (const EventFigure& figure : event.figures) {
    append(line, figure.name, std::to_string(figure.value));
  }
  if (!event.message.empty()) {
    line += ": ";
    append_text(line, event.message);
  }
  return line;
}

OFFSTAGE_NAMESPACE_END
