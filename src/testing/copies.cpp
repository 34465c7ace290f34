// SPDX-License-Identifier: Apache-2.0
#include "host_memory.hpp"
#include "kernel_library.hpp"
#include "operands.hpp"
#include "pinned_ranges.hpp"
#include "registration.hpp"
#include "runtime.hpp"
#include "tensor_access.hpp"
#include "tensor_alias.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/resize_ops.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

bool is_pinned_for_copy(const at::Tensor& host) {
  const std::int64_t bytes = hull_bytes(host);
  const PinnedState state = PinnedRanges::get().classify(host.data_ptr(), bytes);
  TORCH_CHECK(state != PinnedState::kCrosses, "simulated accelerator: invalid argument: ", bytes,
              " bytes to copy begin in one registered range of host memory and end beyond it");
  return state == PinnedState::kPinned;
}

// Host memory that queued copies have yet to read, where they run as late as they may: there it
// must keep its values.
class PendingReads {
 public:
  void add(const at::Tensor& host, StreamMarker done) {
    const auto begin = reinterpret_cast<Address>(host.const_data_ptr());
    const std::lock_guard lock(mutex_);
    std::erase_if(reads_, [](const Read& read) { return read.done.reached(); });
    reads_.push_back({begin, begin + static_cast<Address>(hull_bytes(host)), std::move(done)});
  }
  bool any_of(const at::Tensor& host) {
    const auto begin = reinterpret_cast<Address>(host.const_data_ptr());
    const Address end = begin + static_cast<Address>(hull_bytes(host));
    const std::lock_guard lock(mutex_);
    return std::any_of(reads_.begin(), reads_.end(), [=](const Read& read) {
      return begin < read.end && read.begin < end && !read.done.reached();
    });
  }

 private:
  struct Read {
    Address begin;
    Address end;
    StreamMarker done;
  };
  std::mutex mutex_;
  std::vector<Read> reads_;
};

PendingReads& pending_reads() {
  static auto* const reads = new PendingReads;
  return *reads;
}

// Every element of the tensor, and nothing between them.
void poison_host(const at::Tensor& host) {
  const ByteLayout layout(reinterpret_cast<Address>(host.const_data_ptr()), host.sizes(),
                          host.strides(), static_cast<std::int64_t>(host.itemsize()));
  auto* const first = static_cast<std::byte*>(host.data_ptr());
  layout.any_run([&](Address begin, Address end) {
    std::memset(first + (begin - layout.begin()), kPoisonByte, end - begin);
    return false;
  });
}

// Each byte of the one has its place in the other.
bool have_same_layout(const at::Tensor& from, const at::Tensor& to) {
  return from.scalar_type() == to.scalar_type() && from.sizes() == to.sizes() &&
         from.strides() == to.strides();
}

// A copy inside the devices, from the first access to the second, hands on what is not written yet;
// whoever looks at it is to blame.
void hand_on(Accesses& accesses, bool bytewise) {
  accesses[0].may_be_unwritten = true;
  accesses[1].source = 0;
  accesses[1].bytewise = bytewise;
}

// Between host and device, on the device's current stream.
void copy_over_the_bus(const at::Tensor& host, c10::DeviceIndex index, bool non_blocking, Work work,
                       std::int64_t bytes) {
  Runtime& runtime = Runtime::get();
  Monitor& monitor = runtime.monitor();
  SimulatedDevice& device = runtime.device(index);
  const c10::Stream stream = runtime.current_stream(index);
  const bool to_host = work.engine == Engine::kD2h;
  const bool pinned = is_pinned_for_copy(host);
  const CostModel costs = monitor.costs();
  work.cost += costs.copy_cost(bytes, !pinned   ? costs.pageable_bandwidth
                                      : to_host ? costs.d2h_bandwidth
                                                : costs.h2d_bandwidth);
  if (pinned) add_access(work.accesses, host, to_host ? Use::kWrite : Use::kRead);
  if (non_blocking && pinned) {
    if (to_host && runtime.deferred() && !pending_reads().any_of(host)) poison_host(host);
    monitor.submit(runtime.queue(stream), std::move(work));
    if (!to_host && runtime.deferred()) {
      pending_reads().add(host, monitor.mark(runtime.queue(stream)).marker);
    }
    SimulatedHostAllocator::get().record_event(host.data_ptr(),
                                               host.storage().data_ptr().get_context(), stream);
    return;
  }
  work.counted = [&device] { device.counters.add(&SimulatorCounters::host_waits); };
  monitor.submit_and_wait(runtime.queue(stream), std::move(work), /*program_waits=*/true);
  runtime.throw_errors(index);
}

// On the source's current stream; between two devices, in order with the current streams of both,
// as LibTorch does it for CUDA.
void copy_on_device(c10::DeviceIndex from, c10::DeviceIndex to, Work work, std::int64_t bytes) {
  Runtime& runtime = Runtime::get();
  Monitor& monitor = runtime.monitor();
  const CostModel costs = monitor.costs();
  StreamQueue& source = runtime.current_queue(from);
  if (from == to) {
    work.engine = Engine::kCompute;
    work.cost += costs.cost_of({.name = "copy", .bytes = 2 * bytes});
    monitor.submit(source, std::move(work));
    return;
  }
  work.engine = Engine::kPeer;
  work.cost += costs.copy_cost(bytes, costs.peer_bandwidth);
  StreamQueue& target = runtime.current_queue(to);
  monitor.wait(source, monitor.mark(target));
  monitor.submit(source, std::move(work));
  monitor.wait(target, monitor.mark(source));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  const bool from_device = is_simulated(from);
  const bool to_device = is_simulated(to);
  TORCH_CHECK((from_device || from.is_cpu()) && (to_device || to.is_cpu()),
              "simulated accelerator: cannot copy from ", from.device(), " to ", to.device());
  Runtime::get().faults().enter(FaultPoint::kCopy);
  Work work;
  work.cost = FaultScript::take_delay();  // Before a wait between two devices takes it.
  if (from_device) add_access(work.accesses, from, Use::kRead);
  if (to_device) add_access(work.accesses, to, Use::kWrite);
  // The aliases are CPU tensors that own nothing: they may die on the worker.
  work.run = [to_alias = alias_on_cpu(to), from_alias = alias_on_cpu(from)] {
    copy_on_worker(to_alias, from_alias);
  };
  const auto bytes = static_cast<std::int64_t>(from.nbytes());
  const c10::DeviceIndex index = from_device ? from.device().index() : to.device().index();
  CounterBoard& counters = Runtime::get().device(index).counters;
  if (from_device && to_device) {
    work.name = from.device() == to.device() ? "copy on the device" : "copy between devices";
    hand_on(work.accesses, have_same_layout(from, to));
    copy_on_device(index, to.device().index(), std::move(work), bytes);
    counters.add(&SimulatorCounters::copies_d2d);
    counters.add(&SimulatorCounters::bytes_d2d, bytes);
  } else if (from_device) {
    work.name = "copy to the host";
    work.engine = Engine::kD2h;
    copy_over_the_bus(to, index, non_blocking, std::move(work), bytes);
    counters.add(&SimulatorCounters::copies_d2h);
    counters.add(&SimulatorCounters::bytes_d2h, bytes);
  } else {
    work.name = "copy to the device";
    work.engine = Engine::kH2d;
    copy_over_the_bus(from, index, non_blocking, std::move(work), bytes);
    counters.add(&SimulatorCounters::copies_h2d);
    counters.add(&SimulatorCounters::bytes_h2d, bytes);
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::_ops::resize_::call(to, c10::fromIntArrayRefSlow(from.sizes()), std::nullopt);
  return copy_from(from, to, /*non_blocking=*/false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const c10::DeviceIndex index = self.device().index();
  Runtime& runtime = Runtime::get();
  SimulatedDevice& device = runtime.device(index);
  runtime.faults().enter(FaultPoint::kCopy);
  at::Scalar result;
  const CostModel costs = runtime.monitor().costs();
  Work work{
      .name = "aten::item",
      .engine = Engine::kD2h,
      .cost = costs.copy_cost(static_cast<std::int64_t>(self.itemsize()), costs.pageable_bandwidth),
      .accesses = {},
      .run = [&result, alias = alias_on_cpu(self)] {
        const at::AutoDispatchBelowADInplaceOrView guard;
        result = at::_ops::_local_scalar_dense::call(alias);
      }};
  work.counted = [&device] { device.counters.add(&SimulatorCounters::kernel_waits); };
  add_access(work.accesses, self, Use::kRead);
  runtime.monitor().submit_and_wait(runtime.current_queue(index), std::move(work),
                                    /*program_waits=*/true);
  runtime.throw_errors(index);
  return result;
}

}  // namespace

void copy_bytes(const char* name, c10::DeviceIndex index, void* to, const void* from,
                std::int64_t bytes) {
  Runtime& runtime = Runtime::get();
  Work work{.name = name,
            .engine = Engine::kCompute,
            .cost = runtime.monitor().costs().cost_of({.name = "copy", .bytes = 2 * bytes}),
            .accesses = {},
            .run = [=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); }};
  add_access(work.accesses, from, bytes, Use::kRead);
  add_access(work.accesses, to, bytes, Use::kWrite);
  hand_on(work.accesses, /*bytewise=*/true);
  runtime.monitor().submit(runtime.current_queue(index), std::move(work));
}

void register_copies() {
  torch::Library& library = add_library("aten");
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar_dense);
  // Conjugate and negative bits are resolved by the copy itself; by default LibTorch would resolve
  // them first, with a copy, and so on for ever.
  for (const auto key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    torch::Library& through = add_library("aten", key);
    through.impl("_copy_from", torch::CppFunction::makeFallthrough());
  }
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
