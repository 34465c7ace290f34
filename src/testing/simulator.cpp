// SPDX-License-Identifier: Apache-2.0
#include "host_memory.hpp"
#include "latch.hpp"
#include "pinned_ranges.hpp"
#include "registration.hpp"
#include "runtime.hpp"

#include <offstage/base/error.hpp>
#include <offstage/testing/simulator.hpp>

#include <c10/core/DeviceType.h>

#include <cstdlib>
#include <mutex>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing {
namespace {

using detail::PinnedRanges;
using detail::Runtime;

void check_options(const SimulatorOptions& options) {
  if (options.name.empty()) throw InvalidArgument("simulated accelerator: the name is empty");
  if (options.device_count < 1 || options.device_count > kMaxSimulatedDevices) {
    throw InvalidArgument("simulated accelerator: device_count must be 1 to " +
                          std::to_string(kMaxSimulatedDevices) + ", got " +
                          std::to_string(options.device_count));
  }
  if (options.capacity_bytes < 0) {
    throw InvalidArgument("simulated accelerator: capacity_bytes must not be negative, got " +
                          std::to_string(options.capacity_bytes));
  }
}

c10::DeviceIndex to_index(int index) {
  const int count = Runtime::get().device_count();
  if (index < 0 || index >= count) {
    throw InvalidArgument("simulated accelerator: device index " + std::to_string(index) +
                          " is not in [0, " + std::to_string(count) + ")");
  }
  return static_cast<c10::DeviceIndex>(index);
}

}  // namespace

SimulatorCounters SimulatorCounters::operator-(const SimulatorCounters& earlier) const noexcept {
  SimulatorCounters difference = *this;
  for (const auto field :
       {&SimulatorCounters::allocations, &SimulatorCounters::frees,
        &SimulatorCounters::segments_allocated, &SimulatorCounters::segments_released,
        &SimulatorCounters::cache_releases, &SimulatorCounters::copies_h2d,
        &SimulatorCounters::copies_d2h, &SimulatorCounters::copies_d2d,
        &SimulatorCounters::bytes_h2d, &SimulatorCounters::bytes_d2h, &SimulatorCounters::bytes_d2d,
        &SimulatorCounters::events_recorded, &SimulatorCounters::stream_waits,
        &SimulatorCounters::host_waits, &SimulatorCounters::kernel_waits,
        &SimulatorCounters::kernels, &SimulatorCounters::out_of_memory}) {
    difference.*field -= earlier.*field;
  }
  return difference;
}

class StreamHold::Gate : public detail::Latch {};

StreamHold::StreamHold(std::shared_ptr<Gate> gate) noexcept : gate_(std::move(gate)) {}
StreamHold::StreamHold(StreamHold&&) noexcept = default;
StreamHold& StreamHold::operator=(StreamHold&& other) noexcept {
  release();
  gate_ = std::move(other.gate_);
  return *this;
}
StreamHold::~StreamHold() {
  release();
}

void StreamHold::release() noexcept {
  if (gate_) gate_->open();
  gate_.reset();
}

Simulator& Simulator::install(SimulatorOptions options) {
  static std::mutex mutex;
  static Simulator* installed = nullptr;
  const std::lock_guard lock(mutex);
  if (installed != nullptr) {
    if (installed->options_.name == options.name) return *installed;
    throw StateError("simulated accelerator: installed as '" + installed->options_.name +
                     "', a process can have no second one named '" + options.name + "'");
  }
  check_options(options);
  if (c10::is_privateuse1_backend_registered()) {
    throw StateError("simulated accelerator: LibTorch's one slot for it is taken by '" +
                     c10::get_privateuse1_backend() + "'");
  }
  c10::register_privateuse1_backend(options.name);
  Runtime::create(options);
  detail::register_allocator(options.is_device_allocator);
  detail::register_guard();
  detail::register_hooks();
  detail::register_factories_and_views();
  detail::register_copies();
  detail::register_fallback();
  detail::watch_for_fork();
  // Before LibTorch takes its kernels down, which the workers may still be running.
  std::atexit([] { Runtime::get().shut_down(); });
  installed = new Simulator(std::move(options));
  return *installed;
}

Simulator::Simulator(SimulatorOptions options)
    : options_(std::move(options)), host_memory_(std::make_shared<detail::SimulatedHostMemory>()) {}

c10::Device Simulator::device(int index) const {
  return {detail::kSimulated, to_index(index)};
}

void Simulator::set_capacity(int index, std::int64_t bytes) {
  if (bytes < 0) {
    throw InvalidArgument("simulated accelerator: a capacity must not be negative, got " +
                          std::to_string(bytes));
  }
  Runtime::get().device(to_index(index)).pool.set_capacity(bytes);
}

SimulatorCounters Simulator::counters(int index) const {
  return Runtime::get().device(to_index(index)).counters.read();
}

SimulatorMemory Simulator::memory(int index) const {
  const auto& pool = Runtime::get().device(to_index(index)).pool;
  const auto stats = pool.stats();
  return {.reserved = stats.reserved_bytes[0].current,
          .allocated = stats.allocated_bytes[0].current,
          .active = stats.active_bytes[0].current,
          .inactive_split = stats.inactive_split_bytes[0].current,
          .peak_reserved = stats.reserved_bytes[0].peak,
          .peak_allocated = stats.allocated_bytes[0].peak,
          .free = pool.free_bytes(),
          .total = pool.capacity(),
          .segments = stats.segment[0].current};
}

void Simulator::reset_peaks(int index) {
  Runtime::get().device(to_index(index)).pool.reset_peaks();
}

void Simulator::empty_cache() {
  Runtime::get().empty_cache();
}

std::shared_ptr<HostMemory> Simulator::host_memory() const {
  return host_memory_;
}

std::int64_t Simulator::pinned_bytes() const {
  detail::SimulatedHostAllocator::get().empty_cache();
  return PinnedRanges::get().bytes();
}

bool Simulator::is_pinned(const void* data, std::int64_t bytes) const {
  return PinnedRanges::get().classify(data, bytes) == detail::PinnedState::kPinned;
}

StreamHold Simulator::hold(c10::Stream stream) {
  auto gate = std::make_shared<StreamHold::Gate>();
  Runtime::get().remember(gate);
  Runtime::get().queue(stream).enqueue([gate] { gate->wait(); });
  return StreamHold(std::move(gate));
}

void Simulator::synchronize(int index) {
  Runtime::get().synchronize(to_index(index));
}

void Simulator::reset() {
  std::string in_use;
  std::exception_ptr error;
  for (int i = 0; i < options_.device_count; ++i) {
    auto& device = Runtime::get().device(to_index(i));
    try {
      synchronize(i);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
    device.pool.release_cached();
    device.pool.set_capacity(options_.capacity_bytes);
    device.pool.reset_peaks();
    if (const auto bytes = memory(i).allocated; bytes > 0) {
      in_use += (in_use.empty() ? "" : ", ") + options_.name + ":" + std::to_string(i) + " has " +
                std::to_string(bytes) + " bytes";
    }
  }
  if (error) std::rethrow_exception(error);
  if (!in_use.empty()) {
    throw StateError("simulated accelerator: device memory is still in use: " + in_use);
  }
}

}  // namespace testing
OFFSTAGE_NAMESPACE_END
