// SPDX-License-Identifier: Apache-2.0
#include "runtime.hpp"

#include <offstage/base/exception_text.hpp>

#include <c10/util/Exception.h>

#include <array>
#include <cstdio>
#include <exception>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

Runtime* runtime = nullptr;

thread_local c10::DeviceIndex this_device = 0;
thread_local std::array<c10::StreamId, kMaxSimulatedDevices> this_stream = {};

// The last chance to say it.
void print(ErrorSlot& errors) noexcept {
  try {
    errors.rethrow();
  } catch (...) {
    std::fprintf(stderr,
                 "simulated accelerator: an error that no synchronisation has asked for: %s\n",
                 current_exception_text().c_str());
  }
}

c10::Stream make_stream(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kSimulated, index), id);
}

}  // namespace

SimulatedDevice::SimulatedDevice(std::size_t index, const SimulatorOptions& options,
                                 Monitor& monitor)
    : pool(options.name + ":" + std::to_string(index), options.capacity_bytes, options.poison,
           counters, monitor) {
  const std::string name = options.name + ":" + std::to_string(index);
  for (int i = 0; i <= kPooledStreams; ++i) {
    const std::string stream = i == 0 ? " default stream" : " stream " + std::to_string(i);
    streams.emplace_back(errors, monitor.add_stream(index, name + stream), options.deferred);
    monitor.watch(streams.back());
  }
}

Runtime::Runtime(const SimulatorOptions& options)
    : deferred_(options.deferred), monitor_(static_cast<std::size_t>(options.device_count)) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(options.device_count); ++i) {
    devices_.emplace_back(i, options, monitor_);
  }
}

void Runtime::create(const SimulatorOptions& options) {
  runtime = new Runtime(options);
}

Runtime& Runtime::get() {
  TORCH_INTERNAL_ASSERT(runtime != nullptr);
  return *runtime;
}

c10::DeviceIndex Runtime::device_count() const noexcept {
  return static_cast<c10::DeviceIndex>(devices_.size());
}

c10::DeviceIndex Runtime::check(c10::DeviceIndex index) const {
  if (index == -1) return current_device();
  TORCH_CHECK(index >= 0 && index < device_count(), "simulated accelerator: device index ",
              static_cast<int>(index), " is not in [0, ", static_cast<int>(device_count()), ")");
  return index;
}

SimulatedDevice& Runtime::device(c10::DeviceIndex index) {
  return devices_[static_cast<std::size_t>(check(index))];
}

StreamQueue& Runtime::queue(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == kSimulated, "simulated accelerator: a stream of ",
              stream.device(), " is not one of its streams");
  const auto id = stream.id();
  TORCH_CHECK(id >= 0 && id <= kPooledStreams, "simulated accelerator: no stream has the id ", id);
  return device(stream.device_index()).streams[static_cast<std::size_t>(id)];
}

StreamQueue& Runtime::current_queue(c10::DeviceIndex index) {
  return queue(current_stream(index));
}

c10::DeviceIndex Runtime::current_device() noexcept {
  return this_device;
}

void Runtime::set_current_device(c10::DeviceIndex index) noexcept {
  this_device = index;
}

c10::Stream Runtime::current_stream(c10::DeviceIndex index) const {
  index = check(index);
  return make_stream(index, this_stream[static_cast<std::size_t>(index)]);
}

c10::Stream Runtime::exchange_stream(const c10::Stream& stream) {
  (void)queue(stream);  // Checks.
  const c10::Stream old = current_stream(stream.device_index());
  this_stream[static_cast<std::size_t>(old.device_index())] = stream.id();
  return old;
}

c10::Stream Runtime::new_stream(c10::DeviceIndex index) {
  index = check(index);
  return make_stream(index, 1 + device(index).next_pooled++ % kPooledStreams);
}

void Runtime::synchronize(const c10::Stream& stream) {
  monitor_.host_wait(monitor_.mark(queue(stream)));
  throw_errors(stream.device_index());
}

void Runtime::synchronize(c10::DeviceIndex index) {
  SimulatedDevice& chosen = device(index);
  for (StreamQueue& stream : chosen.streams) monitor_.host_wait(monitor_.mark(stream));
  throw_errors(index);
}

void Runtime::throw_errors(c10::DeviceIndex index) {
  if (CancellationDeferral::is_active()) return;
  device(index).errors.rethrow();
  monitor_.errors().rethrow();
}

void Runtime::host_call(FaultPoint point) {
  faults_.enter(point);
  monitor_.host_work(FaultScript::take_delay());
}

void Runtime::empty_cache() {
  host_call(FaultPoint::kRelease);
  for (SimulatedDevice& each : devices_) {
    each.counters.add(&SimulatorCounters::cache_releases);
    each.pool.release_cached();
  }
}

void Runtime::shut_down() noexcept {
  if (is_forked_child()) return;  // It has no workers to join.
  monitor_.open_holds();
  for (SimulatedDevice& each : devices_) {
    for (StreamQueue& stream : each.streams) stream.shut_down();
  }
  for (SimulatedDevice& each : devices_) print(each.errors);
  print(monitor_.errors());
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
