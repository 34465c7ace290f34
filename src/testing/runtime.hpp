// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The simulated devices of the process, and what each thread has current.

#include "block_pool.hpp"
#include "counter_board.hpp"
#include "monitor.hpp"
#include "stream_queue.hpp"

#include <offstage/base/config.hpp>
#include <offstage/testing/fault_script.hpp>
#include <offstage/testing/simulator.hpp>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstddef>
#include <deque>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

inline constexpr c10::DeviceType kSimulated = c10::DeviceType::PrivateUse1;

/// Streams that `getNewStream` hands out in turn, as CUDA's pool; the default stream comes on top.
inline constexpr int kPooledStreams = 32;

struct SimulatedDevice {
  SimulatedDevice(std::size_t index, const SimulatorOptions& options, Monitor& monitor);

  ErrorSlot errors;
  CounterBoard counters;
  std::deque<StreamQueue> streams;  // [0] is the default stream; the index is the stream's id.
  std::atomic<unsigned> next_pooled = 0;
  BlockPool pool;
};

/// Made by `install`, never destroyed.
class Runtime {
 public:
  static void create(const SimulatorOptions& options);
  static Runtime& get();

  [[nodiscard]] Monitor& monitor() noexcept { return monitor_; }
  [[nodiscard]] FaultScript& faults() noexcept { return faults_; }
  [[nodiscard]] bool deferred() const noexcept { return deferred_; }

  /// A call that queues nothing: lets the fault script fail it, or take time of the host.
  void host_call(FaultPoint point);

  std::atomic<SimulatedStatistics> statistics = SimulatedStatistics::kComplete;

  [[nodiscard]] c10::DeviceIndex device_count() const noexcept;

  /// @param index  -1 is the current device.
  /// @throws c10::Error for an index out of range; so do all members that take a device.
  [[nodiscard]] c10::DeviceIndex check(c10::DeviceIndex index) const;
  [[nodiscard]] SimulatedDevice& device(c10::DeviceIndex index);

  [[nodiscard]] StreamQueue& queue(const c10::Stream& stream);
  [[nodiscard]] StreamQueue& current_queue(c10::DeviceIndex index);

  // Thread-local state.
  [[nodiscard]] static c10::DeviceIndex current_device() noexcept;
  static void set_current_device(c10::DeviceIndex index) noexcept;
  [[nodiscard]] c10::Stream current_stream(c10::DeviceIndex index) const;
  c10::Stream exchange_stream(const c10::Stream& stream);
  [[nodiscard]] c10::Stream new_stream(c10::DeviceIndex index);

  /// The program waits for one stream or for all of a device; throws what the device's work threw.
  void synchronize(const c10::Stream& stream);
  void synchronize(c10::DeviceIndex index);

  /// Throws the errors of the device's work that nobody has seen yet. Not in clean-up that holds a
  /// `CancellationDeferral`, which would swallow them: they stay for the next synchronisation.
  void throw_errors(c10::DeviceIndex index);

  /// `emptyCache`: every device.
  void empty_cache();

  /// Ends holds, finishes what is queued and joins the workers; prints the errors that nobody asked
  /// for. Later frees do nothing.
  void shut_down() noexcept;

 private:
  explicit Runtime(const SimulatorOptions& options);

  const bool deferred_;
  Monitor monitor_;
  FaultScript faults_;
  std::deque<SimulatedDevice> devices_;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
