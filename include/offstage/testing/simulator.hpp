// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// An accelerator in software: LibTorch takes it for a real asynchronous device.

#include <offstage/base/bytes.hpp>
#include <offstage/base/config.hpp>
#include <offstage/device/host_memory.hpp>
#include <offstage/testing/cost_model.hpp>
#include <offstage/testing/fault_script.hpp>
#include <offstage/testing/race_report.hpp>
#include <offstage/testing/timeline.hpp>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing {

/// What device memory is filled with when it is fresh from the device and when it is freed. As
/// float, bfloat16 or half, four or two such bytes make a NaN.
inline constexpr unsigned char kPoisonByte = 0xff;

/// The most devices that a simulator can have.
inline constexpr int kMaxSimulatedDevices = 16;

struct SimulatorOptions {
  /// The name of the device type ("sim:0"): lower case letters and underscores, and none that
  /// LibTorch has, "privateuseone" apart. A process can only ever have one.
  std::string name = "sim";
  /// 1 to `kMaxSimulatedDevices`.
  int device_count = 2;
  /// Memory of each device, in bytes; more than 0.
  std::int64_t capacity_bytes = kGiB;
  /// False: the allocator is only a `c10::Allocator`, so that LibTorch's generic statistics are
  /// out of reach (as with torch_npu up to 2.12); `Simulator::memory` and `empty_cache` still work.
  bool is_device_allocator = true;
  /// Fill fresh and freed device memory with `kPoisonByte`, in stream order.
  bool poison = true;
  /// What the race checker does with a finding.
  RaceAction race_action = RaceAction::kThrow;
  /// True: queued work runs only when somebody waits for it, and memory that a queued copy to the
  /// host will write is poisoned at once. So whoever forgets to wait reads poison every time.
  bool deferred = false;
  /// True: LibTorch's pinned allocator rounds requests up to powers of two, as CUDA's does.
  bool host_rounding = false;
  /// True: LibTorch's pinned allocator keeps freed memory for requests of the same size until its
  /// cache is emptied, as CUDA's does.
  bool host_caching = false;
};

/// What the allocator's statistics tell LibTorch's generic interface. (To have them throw, use
/// `FaultPoint::kStatistics`; to have none at all, `is_device_allocator = false`.)
enum class SimulatedStatistics : std::uint8_t {
  kComplete,
  kPartial,  ///< Only reserved and allocated bytes; all else is 0.
  kAbsent,   ///< Everything is 0.
  kWrong,    ///< Reserved bytes are negative, and more is free than there is.
};

/// How often things happened on one device since `install`. Only ever grows.
struct SimulatorCounters {
  std::int64_t allocations = 0;         ///< Blocks handed out by the caching allocator.
  std::int64_t frees = 0;               ///< Blocks given back to it.
  std::int64_t segments_allocated = 0;  ///< Taken from the device (what cudaMalloc would do).
  std::int64_t segments_released = 0;   ///< Given back to the device (cudaFree).
  std::int64_t cache_releases = 0;      ///< emptyCache; one call counts on every device. The wait
                                        ///< inside is not in `host_waits`.
  std::int64_t copies_h2d = 0;
  std::int64_t copies_d2h = 0;
  std::int64_t copies_d2d = 0;  ///< Counted on the source's device.
  std::int64_t bytes_h2d = 0;   ///< Bytes of the source; so for the other two.
  std::int64_t bytes_d2h = 0;
  std::int64_t bytes_d2d = 0;
  std::int64_t events_recorded = 0;  ///< By the program; the simulator's own are not counted.
  std::int64_t stream_waits = 0;     ///< Streams made to wait for an event by the program.
  std::int64_t host_waits = 0;       ///< Waits that the program demanded: synchronising a stream,
                                     ///< an event or a device, and every copy that is blocking or
                                     ///< has a pageable host side.
  std::int64_t kernel_waits = 0;     ///< Waits that the simulator makes for operations it cannot
                                     ///< queue (its own limitation), and those of `item()`.
  std::int64_t kernels = 0;        ///< Operations computed, copies and fills of freed memory apart.
  std::int64_t out_of_memory = 0;  ///< Allocations that threw `c10::OutOfMemoryError`.

  /// What happened between `earlier` and this reading.
  [[nodiscard]] SimulatorCounters operator-(const SimulatorCounters& earlier) const noexcept;
  friend bool operator==(const SimulatorCounters&, const SimulatorCounters&) = default;
};

/// Figures of one device's memory, in bytes; the meaning is that of LibTorch's `DeviceStats`.
struct SimulatorMemory {
  std::int64_t reserved = 0;        ///< Taken from the device.
  std::int64_t allocated = 0;       ///< Handed out, rounded as the allocator rounds.
  std::int64_t active = 0;          ///< `allocated`, and freed blocks that a recorded stream holds.
  std::int64_t inactive_split = 0;  ///< Free parts of segments partly in use.
  std::int64_t peak_reserved = 0;
  std::int64_t peak_allocated = 0;
  std::int64_t free = 0;      ///< `total - reserved`, never negative.
  std::int64_t total = 0;     ///< The capacity.
  std::int64_t segments = 0;  ///< Count, not bytes.
};

/// Keeps one stream from running what is queued behind the hold, until `release()` or destruction.
///
/// The way to test that something is asynchronous: hold the stream, call, and see the call return.
/// Releasing after the program's exit has begun, or twice, does nothing.
class StreamHold {
 public:
  StreamHold(StreamHold&&) noexcept;
  StreamHold& operator=(StreamHold&&) noexcept;
  ~StreamHold();

  void release() noexcept;

 private:
  friend class Simulator;
  class Gate;
  explicit StreamHold(std::shared_ptr<Gate> gate) noexcept;
  std::shared_ptr<Gate> gate_;
};

/// Blocks that leave holes between them, until destruction.
class Fragmentation {
 public:
  Fragmentation(Fragmentation&&) noexcept;
  Fragmentation& operator=(Fragmentation&&) noexcept;
  ~Fragmentation();

 private:
  friend class Simulator;
  class Blocks;
  explicit Fragmentation(std::unique_ptr<Blocks> blocks) noexcept;
  std::unique_ptr<Blocks> blocks_;
};

/// The simulated accelerator: LibTorch's PrivateUse1 device, one worker thread a stream, a caching
/// allocator with a capacity, pinned host memory, and kernels that compute what the CPU computes,
/// bit for bit.
///
/// Nothing happens in a program that merely links this: `install()` registers everything. After
/// that tensors are made and moved by LibTorch's own calls:
///
///     auto& simulator = offstage::testing::Simulator::install();
///     at::Tensor x = at::ones({2, 2}, at::TensorOptions().device(simulator.device()));
///
/// @par What runs when
/// Operations are queued on the calling thread's current stream and computed by its worker.
/// Copies with `non_blocking` whose host side is pinned are queued too; others wait for the stream.
/// Operations whose result has a shape that depends on elements (or is not known to the simulator
/// before they ran) and those that draw random numbers wait (`kernel_waits`), so they do not return
/// while their stream is held. docs/testing.md names them; the layers of usual nets are not among
/// them.
/// @par Errors
/// What a queued operation throws is kept and thrown by the next synchronisation with its device:
/// an index out of range, for example. Shapes that do not fit throw at the call. A wait in
/// clean-up, under a `CancellationDeferral`, throws neither that nor a race: it leaves them to the
/// next one. An operation with operands on different devices throws at the call, as on a real
/// accelerator; CPU scalars are allowed. A task that nothing orders behind one that it conflicts
/// with is a race: `RaceError` from the call that queues it (see `RaceAction`), whatever the timing
/// is.
/// @par Time
/// The work is done for real, at the CPU's speed. Beside it runs a virtual clock: each call costs
/// the host and each task its stream what the `CostModel` says. Its figures are the same on every
/// machine as long as one thread queues. Queries of streams and events answer by it.
/// @par Random numbers
/// The device has no generator of its own: numbers are those of the CPU generator.
/// @par Threads
/// All members may be called concurrently. Current device and stream are thread-local, as on CUDA.
/// A child made by fork() cannot use the simulator: what would queue or wait throws there.
/// @par Exit
/// When the program's exit begins, holds end, queued work is finished and the workers are joined.
/// An error that no synchronisation has asked for is printed to the standard error stream.
/// Tensors that die later are harmless.
class Simulator {
 public:
  /// Registers the device with LibTorch; once in a process. A later call with the same name returns
  /// the same object and ignores the rest of its options.
  /// @throws StateError       for another name, or if another PrivateUse1 device is registered.
  /// @throws InvalidArgument  for a name, device count or capacity that cannot be.
  static Simulator& install(SimulatorOptions options = {});

  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  [[nodiscard]] const SimulatorOptions& options() const noexcept { return options_; }

  /// @throws InvalidArgument  for an index out of range; so do all members that take one.
  [[nodiscard]] c10::Device device(int index = 0) const;

  /// Sets the memory of one device; live and cached memory stays as it is, beyond it if need be.
  void set_capacity(int index, std::int64_t bytes);

  [[nodiscard]] SimulatorCounters counters(int index = 0) const;
  [[nodiscard]] SimulatorMemory memory(int index = 0) const;

  /// Sets the peaks to the current figures.
  void reset_peaks(int index = 0);

  /// What `c10::DeviceAllocator::emptyCache` does: on every device, waits for the streams of the
  /// segments that are free as a whole and gives these back. Counted in `cache_releases`.
  void empty_cache();

  /// Memory for masters that is pinned by registering it here. A copy must lie in one registration.
  [[nodiscard]] std::shared_ptr<HostMemory> host_memory() const;

  /// Host bytes registered now: by `host_memory()` and by LibTorch's pinned allocations.
  [[nodiscard]] std::int64_t pinned_bytes() const;

  /// True if `bytes` bytes from `data` on lie in one registered range.
  [[nodiscard]] bool is_pinned(const void* data, std::int64_t bytes = 1) const;

  /// Queues a hold on a stream of this device. What was queued before it still runs.
  [[nodiscard]] StreamHold hold(c10::Stream stream);

  // --- races ---

  void set_race_action(RaceAction action);
  /// What was found since the start or the last reset, thrown or not.
  [[nodiscard]] std::vector<RaceReport> races() const;

  /// Tell the checker that the host reads or writes pinned memory now: plain accesses are invisible
  /// to it. Parts of the range that are not pinned are ignored.
  /// @throws RaceError if a queued copy is not done with it and the action is kThrow.
  void host_reads(const void* data, std::int64_t bytes, const std::string& name = "host read");
  void host_writes(const void* data, std::int64_t bytes, const std::string& name = "host write");

  // --- failures ---

  [[nodiscard]] FaultScript& faults() noexcept;

  // --- virtual time ---

  /// @throws InvalidArgument for a rate that is not more than 0, a cost that is negative or more
  ///         than 100 days, or a query that costs nothing.
  void set_costs(CostModel costs);
  [[nodiscard]] CostModel costs() const;
  /// Keeps a span for every task from here on, or stops doing so.
  void record_timeline(bool on);
  /// Since the start or the last reset.
  [[nodiscard]] Timeline timeline() const;
  /// The host computes something else for this long.
  /// @throws InvalidArgument if that is negative, or more than the clock can count.
  void advance_host(std::chrono::nanoseconds duration);

  // --- memory as others leave it ---

  /// Bytes of the device that other processes hold: they count in the device's figures and not in
  /// the allocator's.
  void set_used_by_others(int index, std::int64_t bytes);
  /// The part of the device that this process may take, in (0, 1]; of a later capacity too.
  void set_memory_fraction(int index, double fraction);
  void set_statistics(SimulatedStatistics statistics);
  /// Takes `2 * holes` blocks of `hole_bytes` on a stream and frees every second one.
  [[nodiscard]] Fragmentation fragment(c10::Stream stream, std::int64_t hole_bytes, int holes);

  /// Waits for everything queued on one device, as a program does, but is not counted.
  /// @throws what a queued operation threw.
  void synchronize(int index = 0);

  /// Brings the devices back to their first state, between tests: forgets faults, waits for all
  /// devices, gives cached memory back, restores the options, capacities and costs, and starts
  /// virtual time, peaks and races anew. Counters go on, and nothing of this is counted but the
  /// released segments. The pool of streams goes on too: a context may still hold one of them.
  /// @throws what a queued operation threw, or StateError that says what the test before left
  ///         behind: device memory in use, or a current device, current stream, inference or grad
  ///         mode of this thread that is not the first one. All of the above was done before.
  /// @throws StateError that names the streams that a `StreamHold` holds. Nothing was done then.
  void reset();

 private:
  explicit Simulator(SimulatorOptions options);
  ~Simulator() = default;

  SimulatorOptions options_;
  std::shared_ptr<HostMemory> host_memory_;
};

}  // namespace testing
OFFSTAGE_NAMESPACE_END
