// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What the library tells about itself while it runs.

#include <offstage/base/config.hpp>

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// What happened.
enum class EventKind : std::uint8_t {
  kComponentLoaded,      ///< A component's copy to the device was queued. `bytes`: its bytes.
  kComponentOffloaded,   ///< A component was bound back to its masters. `bytes`: its bytes.
  kRetentionDecided,     ///< A cache decision was taken; `reason` tells which way and why,
                         ///< `figures` from what. `bytes`: cached, 0 if not known.
  kHostCacheDecided,     ///< The same for idle pinned host memory.
  kTelemetryFailed,      ///< First unreadable figure of a cache and kind; `message`: the cause and
                         ///< what it costs.
  kReleaseFailed,        ///< Releasing the allocator's cache failed; `message`: the cause.
  kOutOfMemoryRetry,     ///< A load ran out of memory and is tried once more.
  kPinningFailed,        ///< Masters stay pageable; `message`: the cause. `bytes`: how many.
  kSlabStillReferenced,  ///< User code keeps a view of offloaded device memory; `message`: paths.
  kSlabQuarantined,      ///< Device memory is kept for ever, since work on it cannot be awaited.
  kTensorReplaced,       ///< A managed tensor was replaced or moved by user code while loaded.
  kEditLost,             ///< Tensors were written on the device; `message`: paths. Not kept.
  kAuditFinding,         ///< `reason`: what was found; `message`: where, and what it means.
  kGradEnabled,          ///< Staged while gradients are being recorded. Reported once a stager.
  kErrorDropped,         ///< An error lost to an earlier one, or met in a destructor.
};

/// The stable spelling of a kind in logs: "component_loaded", ...
[[nodiscard]] constexpr std::string_view to_string(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::kComponentLoaded:
      return "component_loaded";
    case EventKind::kComponentOffloaded:
      return "component_offloaded";
    case EventKind::kRetentionDecided:
      return "retention_decided";
    case EventKind::kHostCacheDecided:
      return "host_cache_decided";
    case EventKind::kTelemetryFailed:
      return "telemetry_failed";
    case EventKind::kReleaseFailed:
      return "release_failed";
    case EventKind::kOutOfMemoryRetry:
      return "out_of_memory_retry";
    case EventKind::kPinningFailed:
      return "pinning_failed";
    case EventKind::kSlabStillReferenced:
      return "slab_still_referenced";
    case EventKind::kSlabQuarantined:
      return "slab_quarantined";
    case EventKind::kTensorReplaced:
      return "tensor_replaced";
    case EventKind::kEditLost:
      return "edit_lost";
    case EventKind::kAuditFinding:
      return "audit_finding";
    case EventKind::kGradEnabled:
      return "grad_enabled";
    case EventKind::kErrorDropped:
      return "error_dropped";
  }
  return "unknown";
}

/// A number that goes with an event, under a stable name such as "bound". Bytes, if the name does
/// not say otherwise.
struct EventFigure {
  std::string_view name = {};
  std::int64_t value = 0;

  bool operator==(const EventFigure&) const = default;
};

/// One thing that happened. The views are borrowed: copy them to keep them beyond the call.
struct Event {
  EventKind kind = EventKind::kErrorDropped;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  std::string_view component = {};            ///< Name of the component; empty where there is none.
  std::string_view reason = {};               ///< Stable short word, such as a retention reason.
  std::string_view message = {};              ///< For people; empty where the kind says it all.
  std::int64_t bytes = 0;                     ///< Meaning by kind; 0 where there is none.
  std::chrono::nanoseconds duration{};        ///< Host time the operation took.
  std::span<const EventFigure> figures = {};  ///< What it was decided from. Each name occurs once.
};

OFFSTAGE_NAMESPACE_END
