// SPDX-License-Identifier: Apache-2.0
#include "host_memory.hpp"
#include "latch.hpp"
#include "pinned_ranges.hpp"
#include "registration.hpp"
#include "runtime.hpp"

#include <offstage/base/error.hpp>
#include <offstage/testing/simulator.hpp>

#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing {
namespace {

using detail::PinnedRanges;
using detail::Runtime;

constexpr std::chrono::hours kLongestCost(100 * 24);

// LibTorch must be able to read "name:0": it knows letters and underscores, and compares with the
// name in lower case.
void check_name(const std::string& name) {
  const bool readable = !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || c == '_';
  });
  if (!readable) {
    throw InvalidArgument(
        "simulated accelerator: a name consists of lower case letters and underscores, got '" +
        name + "'");
  }
  try {
    if (c10::Device(name).type() == detail::kSimulated) return;
  } catch (const c10::Error&) {
    return;  // Of no device that LibTorch has.
  }
  throw InvalidArgument("simulated accelerator: LibTorch has a device type '" + name + "'");
}

void check_options(const SimulatorOptions& options) {
  check_name(options.name);
  if (options.device_count < 1 || options.device_count > kMaxSimulatedDevices) {
    throw InvalidArgument("simulated accelerator: device_count must be 1 to " +
                          std::to_string(kMaxSimulatedDevices) + ", got " +
                          std::to_string(options.device_count));
  }
  if (options.capacity_bytes <= 0) {
    throw InvalidArgument("simulated accelerator: capacity_bytes must be more than 0, got " +
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
  Runtime::get().monitor().set_race_action(options.race_action);
  detail::SimulatedHostAllocator::get().set_rounding(options.host_rounding);
  detail::SimulatedHostAllocator::get().set_caching(options.host_caching);
  detail::register_allocator(options.is_device_allocator);
  detail::register_guard();
  detail::register_hooks();
  detail::register_factories_and_views();
  detail::register_copies();
  detail::register_fallback();
  detail::register_gradients();
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
  detail::SimulatedHostAllocator::get().collect();
  return PinnedRanges::get().bytes();
}

bool Simulator::is_pinned(const void* data, std::int64_t bytes) const {
  return PinnedRanges::get().classify(data, bytes) == detail::PinnedState::kPinned;
}

StreamHold Simulator::hold(c10::Stream stream) {
  auto gate = std::make_shared<StreamHold::Gate>();
  detail::StreamQueue& queue = Runtime::get().queue(stream);
  Runtime::get().monitor().add_hold(queue, gate);
  queue.enqueue([gate] { gate->wait(); });
  return StreamHold(std::move(gate));
}

void Simulator::synchronize(int index) {
  Runtime::get().synchronize(to_index(index));
}

void Simulator::set_race_action(RaceAction action) {
  Runtime::get().monitor().set_race_action(action);
}

std::vector<RaceReport> Simulator::races() const {
  return Runtime::get().monitor().races();
}

void Simulator::host_reads(const void* data, std::int64_t bytes, const std::string& name) {
  for (const auto& [first, length] : PinnedRanges::get().parts(data, bytes)) {
    Runtime::get().monitor().host_access(name, first, length, /*writes=*/false);
  }
}

void Simulator::host_writes(const void* data, std::int64_t bytes, const std::string& name) {
  for (const auto& [first, length] : PinnedRanges::get().parts(data, bytes)) {
    Runtime::get().monitor().host_access(name, first, length, /*writes=*/true);
  }
}

FaultScript& Simulator::faults() noexcept {
  return Runtime::get().faults();
}

void Simulator::set_costs(CostModel costs) {
  for (const std::int64_t rate :
       {costs.h2d_bandwidth, costs.d2h_bandwidth, costs.pageable_bandwidth, costs.peer_bandwidth,
        costs.memory_bandwidth, costs.flops_per_microsecond}) {
    if (rate <= 0) {
      throw InvalidArgument(
          "simulated accelerator: a rate of the cost model must be more than 0, "
          "got " +
          std::to_string(rate));
    }
  }
  for (const std::chrono::nanoseconds duration :
       {costs.copy_latency, costs.kernel_latency, costs.enqueue, costs.query, costs.allocate_cached,
        costs.allocate_segment, costs.release_segment}) {
    if (duration < std::chrono::nanoseconds::zero()) {
      throw InvalidArgument("simulated accelerator: a cost must not be negative, got " +
                            std::to_string(duration.count()) + " ns");
    }
    if (duration > kLongestCost) {
      throw InvalidArgument("simulated accelerator: a cost must not be more than 100 days, got " +
                            std::to_string(duration.count()) + " ns");
    }
  }
  if (costs.query == std::chrono::nanoseconds::zero()) {
    throw InvalidArgument(
        "simulated accelerator: a query must cost more than 0, or a loop of them would never end");
  }
  Runtime::get().monitor().set_costs(std::move(costs));
}

CostModel Simulator::costs() const {
  return Runtime::get().monitor().costs();
}

void Simulator::record_timeline(bool on) {
  Runtime::get().monitor().set_recording(on);
}

Timeline Simulator::timeline() const {
  return Runtime::get().monitor().timeline();
}

void Simulator::advance_host(std::chrono::nanoseconds duration) {
  Runtime::get().monitor().advance_host(duration);
}

void Simulator::set_used_by_others(int index, std::int64_t bytes) {
  if (bytes < 0) {
    throw InvalidArgument("simulated accelerator: used bytes must not be negative, got " +
                          std::to_string(bytes));
  }
  Runtime::get().device(to_index(index)).pool.set_used_by_others(bytes);
}

void Simulator::set_memory_fraction(int index, double fraction) {
  if (!(fraction > 0 && fraction <= 1)) {
    throw InvalidArgument("simulated accelerator: a memory fraction must be in (0, 1], got " +
                          std::to_string(fraction));
  }
  Runtime::get().device(to_index(index)).pool.set_fraction(fraction);
}

void Simulator::set_statistics(SimulatedStatistics statistics) {
  Runtime::get().statistics = statistics;
}

class Fragmentation::Blocks {
 public:
  std::vector<c10::DataPtr> kept;
};

Fragmentation::Fragmentation(std::unique_ptr<Blocks> blocks) noexcept
    : blocks_(std::move(blocks)) {}
Fragmentation::Fragmentation(Fragmentation&&) noexcept = default;
Fragmentation& Fragmentation::operator=(Fragmentation&&) noexcept = default;
Fragmentation::~Fragmentation() = default;

Fragmentation Simulator::fragment(c10::Stream stream, std::int64_t hole_bytes, int holes) {
  if (hole_bytes <= 0 || holes <= 0) {
    throw InvalidArgument("simulated accelerator: holes must have bytes, and there must be some");
  }
  const c10::StreamGuard guard(stream);
  auto blocks = std::make_unique<Fragmentation::Blocks>();
  std::vector<c10::DataPtr> freed;
  for (int i = 0; i < holes; ++i) {
    for (auto* list : {&freed, &blocks->kept}) {
      list->push_back(
          c10::GetAllocator(detail::kSimulated)->allocate(static_cast<std::size_t>(hole_bytes)));
    }
  }
  return Fragmentation(std::move(blocks));
}

namespace {

/// What this thread is still set to, besides the defaults; empty if nothing.
std::string thread_residue() {
  std::string residue;
  const auto add = [&](const std::string& what) {
    residue += (residue.empty() ? "" : ", ") + what;
  };
  Runtime& runtime = Runtime::get();
  if (Runtime::current_device() != 0) {
    add("device " + std::to_string(Runtime::current_device()) + " is current");
  }
  for (c10::DeviceIndex index = 0; index < runtime.device_count(); ++index) {
    if (const auto id = runtime.current_stream(index).id(); id != 0) {
      add("stream " + std::to_string(id) + " is current on device " + std::to_string(index));
    }
  }
  if (c10::InferenceMode::is_enabled()) add("inference mode is on");
  if (!c10::GradMode::is_enabled() && !c10::InferenceMode::is_enabled()) add("grad mode is off");
  return residue;
}

}  // namespace

void Simulator::reset() {
  Runtime& runtime = Runtime::get();
  if (const std::string held = runtime.monitor().held_streams(); !held.empty()) {
    throw StateError(
        "simulated accelerator: a StreamHold is alive, and a reset would wait for ever: " + held);
  }
  runtime.faults().clear();
  runtime.statistics = SimulatedStatistics::kComplete;
  std::string in_use;
  std::exception_ptr error;
  for (int i = 0; i < options_.device_count; ++i) {
    auto& device = runtime.device(to_index(i));
    try {
      synchronize(i);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
    device.pool.release_cached();
    device.pool.set_capacity(options_.capacity_bytes);
    device.pool.set_used_by_others(0);
    device.pool.set_fraction(1);
    device.pool.reset_peaks();
    if (const auto bytes = memory(i).allocated; bytes > 0) {
      in_use += (in_use.empty() ? "" : ", ") + options_.name + ":" + std::to_string(i) + " has " +
                std::to_string(bytes) + " bytes";
    }
  }
  detail::SimulatedHostAllocator::get().empty_cache();
  runtime.monitor().set_race_action(options_.race_action);
  runtime.monitor().set_costs({});
  runtime.monitor().set_recording(false);
  runtime.monitor().reset();
  if (error) std::rethrow_exception(error);
  if (!in_use.empty()) {
    throw StateError("simulated accelerator: device memory is still in use: " + in_use);
  }
  if (const std::string residue = thread_residue(); !residue.empty()) {
    throw StateError("simulated accelerator: left behind in this thread: " + residue);
  }
}

}  // namespace testing
OFFSTAGE_NAMESPACE_END
