// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What everything that moves memory to one device shares: its copy stream and its services.

#include <offstage/base/config.hpp>
#include <offstage/base/event_sink.hpp>
#include <offstage/device/capture_probe.hpp>
#include <offstage/device/host_memory.hpp>
#include <offstage/device/pinned_ledger.hpp>
#include <offstage/device/telemetry_backend.hpp>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

OFFSTAGE_NAMESPACE_BEGIN

/// What a `DeviceContext` is made from. Null and empty members mean: the default.
struct DeviceContextOptions {
  /// The stream that carries the copies. Default: a new one from the device's pool.
  std::optional<c10::Stream> copy_stream = std::nullopt;
  /// Where masters come from. Default: `default_host_memory()` of the device's type.
  std::shared_ptr<HostMemory> host_memory = nullptr;
  /// Reads the device's figures and frees its cache. Default: what `TelemetryRegistry` chooses. A
  /// CPU has none.
  std::shared_ptr<TelemetryBackend> telemetry = nullptr;
  /// Receives events. Default: none.
  std::shared_ptr<EventSink> sink = nullptr;
  /// Tells whether a graph is being captured. Default: none; then a capture is not seen.
  std::shared_ptr<CaptureProbe> capture_probe = nullptr;
  /// Counts what is pinned, for budgets. Default: the one of the process.
  std::shared_ptr<PinnedLedger> pinned_ledger = nullptr;
};

/// One device as the library uses it. Make one for each device and hand it to everything that
/// stages there: there is one copy stream per device, so that copies of different components queue
/// in order instead of competing for the link.
///
/// @par Threads
/// All members may be called concurrently.
/// @par Ownership
/// Shared by all that stage to the device, and by their host masters: it lives as long as any.
class DeviceContext {
 public:
  /// Initialises the device, so that its allocator can be asked.
  /// @param device  The device, with an index; a CPU may come without.
  /// @throws InvalidArgument if the index is missing or the copy stream is of another device.
  explicit DeviceContext(c10::Device device, DeviceContextOptions options = {});

  /// `std::make_shared` of the above.
  [[nodiscard]] static std::shared_ptr<DeviceContext> create(c10::Device device,
                                                             DeviceContextOptions options = {});

  [[nodiscard]] c10::Device device() const noexcept { return device_; }

  /// False on a device without streams and events: everything there happens at once.
  [[nodiscard]] bool has_streams() const noexcept { return device_.type() != c10::kCPU; }

  /// The stream on which device memory for components is allocated and filled.
  [[nodiscard]] c10::Stream copy_stream() const noexcept { return copy_stream_; }

  /// The calling thread's current stream on this device.
  [[nodiscard]] c10::Stream current_stream() const;

  /// Blocks the host until `stream` is idle.
  void synchronize(const c10::Stream& stream) const;

  [[nodiscard]] const std::shared_ptr<HostMemory>& host_memory() const noexcept {
    return host_memory_;
  }
  /// True if what the calling thread queues now, on its current stream or on the copy stream, would
  /// become part of a graph. False without a probe.
  [[nodiscard]] bool is_capturing() const;

  [[nodiscard]] PinnedLedger& pinned_ledger() const noexcept { return *pinned_ledger_; }
  /// Null on a device that has no allocator cache (the CPU).
  [[nodiscard]] const std::shared_ptr<TelemetryBackend>& telemetry() const noexcept {
    return telemetry_;
  }
  /// Null for none.
  [[nodiscard]] EventSink* sink() const noexcept { return sink_.get(); }

  /// False in a process forked off the one that made this object: there the device is unusable.
  [[nodiscard]] bool is_creating_process() const noexcept;

  /// Device memory that is kept for ever because work on it could not be awaited. Bytes, a sum.
  [[nodiscard]] std::int64_t quarantined_bytes() const noexcept { return quarantined_bytes_; }
  void add_quarantined(std::int64_t bytes) noexcept { quarantined_bytes_ += bytes; }

  /// Host memory that is kept for ever because the device could not be asked to let go of it (it is
  /// dead, or the process was forked). Bytes, a sum.
  [[nodiscard]] std::int64_t abandoned_host_bytes() const noexcept { return abandoned_host_bytes_; }
  void add_abandoned_host(std::int64_t bytes) noexcept { abandoned_host_bytes_ += bytes; }

 private:
  const c10::Device device_;
  const c10::Stream copy_stream_;
  const std::shared_ptr<HostMemory> host_memory_;
  const std::shared_ptr<TelemetryBackend> telemetry_;
  const std::shared_ptr<EventSink> sink_;
  const std::shared_ptr<CaptureProbe> capture_probe_;
  const std::shared_ptr<PinnedLedger> pinned_ledger_;
  const std::int64_t process_id_;
  std::atomic<std::int64_t> quarantined_bytes_{0};
  std::atomic<std::int64_t> abandoned_host_bytes_{0};
};

OFFSTAGE_NAMESPACE_END
