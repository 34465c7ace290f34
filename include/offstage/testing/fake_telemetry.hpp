// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Telemetry with figures that a test sets.

#include <offstage/base/config.hpp>
#include <offstage/base/error.hpp>
#include <offstage/device/telemetry_backend.hpp>
#include <offstage/device/telemetry_figures.hpp>

#include <c10/core/Device.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing {

/// How a call on a double fails.
enum class FakeFailure : std::uint8_t {
  kNone,
  kTelemetryError,  ///< A TelemetryError.
  kStdException,    ///< A std::runtime_error.
  kNotStd,          ///< An int: nothing that derives from std::exception.
};

/// How often each member of a FakeTelemetry was called, failed calls included.
struct FakeTelemetryCalls {
  int allocator_stats = 0;
  int device_memory = 0;
  int release_cached = 0;

  [[nodiscard]] int queries() const noexcept { return allocator_stats + device_memory; }
  friend bool operator==(const FakeTelemetryCalls&, const FakeTelemetryCalls&) = default;
};

/// One device's figures, the same for every device asked. A release gives what is cached and not
/// in a split segment back to the device, as an allocator does.
///
/// @par Threads
/// All members may be called concurrently.
class FakeTelemetry final : public TelemetryBackend {
 public:
  FakeTelemetry() = default;
  explicit FakeTelemetry(MemoryFigures figures) : figures_(figures) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "fake"; }

  /// Not checked: impossible figures are what some tests are about.
  void set_figures(MemoryFigures figures) {
    const std::lock_guard lock(mutex_);
    figures_ = figures;
  }
  [[nodiscard]] MemoryFigures figures() const {
    const std::lock_guard lock(mutex_);
    return figures_;
  }

  /// From now on the calls of a kind fail like this.
  void fail_allocator_stats(FakeFailure failure) {
    const std::lock_guard lock(mutex_);
    allocator_failure_ = failure;
  }
  void fail_device_memory(FakeFailure failure) {
    const std::lock_guard lock(mutex_);
    device_failure_ = failure;
  }
  void fail_release(FakeFailure failure) {
    const std::lock_guard lock(mutex_);
    release_failure_ = failure;
  }

  [[nodiscard]] FakeTelemetryCalls calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

  [[nodiscard]] AllocatorStats allocator_stats(c10::Device /*device*/) override {
    const std::lock_guard lock(mutex_);
    ++calls_.allocator_stats;
    fail(allocator_failure_, "fake: allocator statistics are unavailable");
    return figures_.allocator;
  }

  [[nodiscard]] DeviceMemory device_memory(c10::Device /*device*/) override {
    const std::lock_guard lock(mutex_);
    ++calls_.device_memory;
    fail(device_failure_, "fake: device memory is unavailable");
    return figures_.device;
  }

  void release_cached(c10::Device /*device*/) override {
    const std::lock_guard lock(mutex_);
    ++calls_.release_cached;
    fail(release_failure_, "fake: the cache cannot be released");
    AllocatorStats& allocator = figures_.allocator;
    const std::int64_t released = std::max<std::int64_t>(
        0, allocator.reserved - allocator.allocated - allocator.inactive_split);
    allocator.reserved -= released;
    figures_.device.free += released;
  }

 private:
  static void fail(FakeFailure failure, const char* message) {
    switch (failure) {
      case FakeFailure::kNone:
        return;
      case FakeFailure::kTelemetryError:
        throw TelemetryError(message);
      case FakeFailure::kStdException:
        throw std::runtime_error(message);
      case FakeFailure::kNotStd:
        throw 42;
    }
  }

  mutable std::mutex mutex_;
  MemoryFigures figures_;
  FakeFailure allocator_failure_ = FakeFailure::kNone;
  FakeFailure device_failure_ = FakeFailure::kNone;
  FakeFailure release_failure_ = FakeFailure::kNone;
  FakeTelemetryCalls calls_;
};

}  // namespace testing
OFFSTAGE_NAMESPACE_END
