// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Events as lines of a spdlog logger. Part of offstage::log.

#include <offstage/base/config.hpp>
#include <offstage/base/event.hpp>
#include <offstage/base/event_sink.hpp>
#include <offstage/observe/log_level.hpp>

#include <memory>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {
class LogOutput;
}

/// The level at which a kind of event is logged.
[[nodiscard]] constexpr LogLevel level_of(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::kComponentLoaded:
    case EventKind::kComponentOffloaded:
    case EventKind::kRetentionDecided:
    case EventKind::kHostCacheDecided:
      return LogLevel::kDebug;
    case EventKind::kTelemetryFailed:
    case EventKind::kOutOfMemoryRetry:
    case EventKind::kPinningFailed:
    case EventKind::kSlabStillReferenced:
    case EventKind::kTensorReplaced:
    case EventKind::kEditLost:
    case EventKind::kAuditFinding:
    case EventKind::kGradEnabled:
      return LogLevel::kWarning;
    case EventKind::kReleaseFailed:
    case EventKind::kSlabQuarantined:
    case EventKind::kErrorDropped:
      return LogLevel::kError;
  }
  return LogLevel::kError;
}

/// Writes one line for each event to a logger of spdlog, at the level that `level_of` says.
///
/// The logger is known by its name, since a file that includes both spdlog and LibTorch may not
/// compile: each brings an fmt of its own. A logger that the program has registered under the name
/// is used as it is; if there is none, one that writes to the error output is made and registered.
/// So register your own before the first sink of its name is made.
/// A line of a level that the logger does not want costs a comparison and is not put together.
///
/// @code{.txt}
/// component_loaded device=cuda:0 component=vae bytes=335544320 us=41.5
///
/// telemetry_failed device=npu:0 reason=allocator_stats: aclrtGetMemInfo failed; ...
/// @endcode
///
/// @par Threads
/// All members may be called concurrently, if the logger may (spdlog's "_mt").
/// @par Errors
/// What goes wrong in writing a line is spdlog's error handler's; nothing of it reaches the sender,
/// whatever the logger's sinks and that handler throw.
class LogSink final : public EventSink {
 public:
  /// @throws InvalidArgument if `logger` is empty; what spdlog throws if no logger can be made.
  explicit LogSink(const std::string& logger = "offstage");
  LogSink(const LogSink&) = delete;
  LogSink& operator=(const LogSink&) = delete;
  LogSink(LogSink&&) = delete;
  LogSink& operator=(LogSink&&) = delete;
  ~LogSink() override;

  void on_event(const Event& event) noexcept override;

  /// From now on the logger takes events from this level on. spdlog's default takes warnings and
  /// errors. The level belongs to the logger: whoever else uses it is concerned too.
  void set_level(LogLevel level) noexcept;

 private:
  std::unique_ptr<detail::LogOutput> output_;
};

/// The line for an event, without its level: the kind, what is there of device, component, reason,
/// bytes, microseconds and figures, and after a colon the message. Line breaks are written as "\n",
/// other control characters as "\x1b".
[[nodiscard]] std::string to_line(const Event& event);

OFFSTAGE_NAMESPACE_END
