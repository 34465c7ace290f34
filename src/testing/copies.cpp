// SPDX-License-Identifier: Apache-2.0
#include "host_memory.hpp"
#include "kernel_library.hpp"
#include "pinned_ranges.hpp"
#include "registration.hpp"
#include "runtime.hpp"
#include "tensor_alias.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/resize_ops.h>

#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

bool is_simulated(const at::Tensor& tensor) {
  return tensor.device().type() == kSimulated;
}

bool is_pinned_for_copy(const at::Tensor& host) {
  const std::int64_t bytes = hull_bytes(host);
  const PinnedState state = PinnedRanges::get().classify(host.data_ptr(), bytes);
  TORCH_CHECK(state != PinnedState::kCrosses, "simulated accelerator: invalid argument: ", bytes,
              " bytes to copy begin in one registered range of host memory and end beyond it");
  return state == PinnedState::kPinned;
}

// Between host and device, on the device's current stream.
void copy_over_the_bus(const at::Tensor& host, c10::DeviceIndex index, bool non_blocking,
                       StreamQueue::Task task) {
  Runtime& runtime = Runtime::get();
  SimulatedDevice& device = runtime.device(index);
  const c10::Stream stream = runtime.current_stream(index);
  if (non_blocking && is_pinned_for_copy(host)) {
    runtime.queue(stream).enqueue(std::move(task));
    SimulatedHostAllocator::get().record_event(host.data_ptr(),
                                               host.storage().data_ptr().get_context(), stream);
    return;
  }
  device.counters.add(&SimulatorCounters::host_waits);
  runtime.queue(stream).run(std::move(task));
  device.errors.rethrow();
}

// On the source's current stream; between two devices, in order with the current streams of both.
void copy_on_device(c10::DeviceIndex from, c10::DeviceIndex to, StreamQueue::Task task) {
  Runtime& runtime = Runtime::get();
  StreamQueue& source = runtime.current_queue(from);
  if (from == to) {
    source.enqueue(std::move(task));
    return;
  }
  StreamQueue& target = runtime.current_queue(to);
  source.wait_for(target.record());
  source.enqueue(std::move(task));
  target.wait_for(source.record());
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  const bool from_device = is_simulated(from);
  const bool to_device = is_simulated(to);
  TORCH_CHECK((from_device || from.is_cpu()) && (to_device || to.is_cpu()),
              "simulated accelerator: cannot copy from ", from.device(), " to ", to.device());
  // The aliases are CPU tensors that own nothing: they may die on the worker.
  StreamQueue::Task task = [to_alias = alias_on_cpu(to), from_alias = alias_on_cpu(from)] {
    copy_on_worker(to_alias, from_alias);
  };
  const auto bytes = static_cast<std::int64_t>(from.nbytes());
  const c10::DeviceIndex index = from_device ? from.device().index() : to.device().index();
  CounterBoard& counters = Runtime::get().device(index).counters;
  if (from_device && to_device) {
    copy_on_device(index, to.device().index(), std::move(task));
    counters.add(&SimulatorCounters::copies_d2d);
    counters.add(&SimulatorCounters::bytes_d2d, bytes);
  } else if (from_device) {
    copy_over_the_bus(to, index, non_blocking, std::move(task));
    counters.add(&SimulatorCounters::copies_d2h);
    counters.add(&SimulatorCounters::bytes_d2h, bytes);
  } else {
    copy_over_the_bus(from, index, non_blocking, std::move(task));
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
  SimulatedDevice& device = Runtime::get().device(index);
  device.counters.add(&SimulatorCounters::kernel_waits);
  at::Scalar result;
  Runtime::get().current_queue(index).run([&result, alias = alias_on_cpu(self)] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    result = at::_ops::_local_scalar_dense::call(alias);
  });
  device.errors.rethrow();
  return result;
}

}  // namespace

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
