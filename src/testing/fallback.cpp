// SPDX-License-Identifier: Apache-2.0
#include "kernel_library.hpp"
#include "kernel_work.hpp"
#include "registration.hpp"
#include "runtime.hpp"
#include "tensor_access.hpp"
#include "tensor_alias.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/resize_ops.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

using torch::jit::Stack;

// Replaces every tensor of a value, the same one by the same one, and every device.
class ValueMapper {
 public:
  ValueMapper(c10::Device device, std::function<at::Tensor(const at::Tensor&)> map)
      : device_(device), map_(std::move(map)) {}

  c10::IValue operator()(const c10::IValue& value) {
    if (value.isTensor()) return map(value.toTensor());
    if (value.isDevice()) return device_;
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(map(tensor));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor ? std::optional(map(*tensor)) : std::nullopt);
      }
      return list;
    }
    return value;
  }

  Stack operator()(const Stack& stack) {
    Stack mapped;
    mapped.reserve(stack.size());
    for (const c10::IValue& value : stack) mapped.push_back((*this)(value));
    return mapped;
  }

 private:
  at::Tensor map(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    at::Tensor& mapped = known_[tensor.unsafeGetTensorImpl()];
    if (!mapped.defined()) mapped = map_(tensor);
    return mapped;
  }

  c10::Device device_;
  std::function<at::Tensor(const at::Tensor&)> map_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> known_;
};

void for_each_tensor(const Stack& stack, const std::function<void(const at::Tensor&)>& visit) {
  ValueMapper mapper(at::kCPU, [&](const at::Tensor& tensor) {
    visit(tensor);
    return tensor;
  });
  for (const c10::IValue& value : stack) mapper(value);
}

bool is_simulated(const at::Tensor& tensor) {
  return tensor.device().type() == kSimulated;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Index tensors may be on the host, as on CUDA.
bool takes_host_indices(const c10::OperatorHandle& op) {
  const std::string_view name = op.schema().name();
  return name == "aten::index" || name == "aten::index_put_" || name == "aten::_unsafe_index" ||
         name == "aten::_index_put_impl_";
}

c10::DeviceIndex common_device(const c10::OperatorHandle& op, const Stack& arguments) {
  std::optional<c10::Device> device;
  const bool host_indices = takes_host_indices(op);
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    if (tensor.is_cpu() && (tensor.dim() == 0 || host_indices)) return;
    if (!device) device = tensor.device();
    TORCH_CHECK(tensor.device() == *device && is_simulated(tensor),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                *device, " and ", tensor.device(), ", in ", op.operator_name(),
                " (or none on the simulated accelerator)");
  });
  if (!device) {
    for (const c10::IValue& value : arguments) {
      if (value.isDevice()) device = value.toDevice();
    }
  }
  TORCH_CHECK(device && device->type() == kSimulated, "simulated accelerator: ", op.operator_name(),
              " names no device");
  return Runtime::get().check(device->index());
}

void keep_number_flag(const at::Tensor& from, const at::Tensor& to) {
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) {
    to.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
}

// What a worker computes with: device memory as it is, host scalars as they are now.
at::Tensor to_operand(const at::Tensor& tensor) {
  if (is_simulated(tensor)) return alias_on_cpu(tensor);
  at::Tensor copy = at::detail::empty_cpu(tensor.sizes(), tensor.scalar_type());
  copy_on_worker(copy, tensor);
  keep_number_flag(tensor, copy);
  return copy;
}

at::Tensor to_meta(const at::Tensor& tensor) {
  at::Tensor meta =
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  meta._set_conj(tensor.is_conj());
  meta._set_neg(tensor.is_neg());
  keep_number_flag(tensor, meta);
  return meta;
}

// One operation of the program on one device.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack arguments)
      : op_(op),
        arguments_(std::move(arguments)),
        index_(common_device(op_, arguments_)),
        device_(Runtime::get().device(index_)),
        stream_(Runtime::get().current_queue(index_)) {
    for (const c10::Argument& result : op_.schema().returns()) {
      TORCH_CHECK(result.alias_info() == nullptr || is_written(result),
                  "simulated accelerator: ", op_.operator_name(),
                  " makes a view, which it does not know how to do");
    }
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!is_written(op_.schema().arguments()[i]) || !arguments_[i].isTensor()) continue;
      TORCH_CHECK(is_simulated(arguments_[i].toTensor()),
                  "simulated accelerator: ", op_.operator_name(),
                  " cannot write its result to the host");
    }
  }

  void run(Stack& stack) {
    Runtime::get().faults().enter(FaultPoint::kKernel);
    delay_ = FaultScript::take_delay();  // Before the results are allocated, which is a call too.
    device_.counters.add(&SimulatorCounters::kernels);
    if (can_be_queued()) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      enqueue();
      for (std::size_t i = 0; i < op_.schema().returns().size(); ++i) {
        stack.push_back(written_argument(i));
      }
    } else {
      const at::AutoDispatchBelowADInplaceOrView guard;
      run_and_wait(stack);
    }
  }

 private:
  // True if every result is a written argument whose shape is known before the computation. Empty
  // `out` arguments get the shape that they will have.
  bool can_be_queued() {
    const auto& schema = op_.schema();
    for (const c10::Argument& result : schema.returns()) {
      if (!is_written(result)) return false;
    }
    if (draws_random_numbers() || !op_.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) {
      return false;
    }
    Stack meta = ValueMapper(at::kMeta, to_meta)(arguments_);
    Stack results = meta;
    try {
      const at::AutoDispatchBelowADInplaceOrView guard;
      op_.callBoxed(&results);
    } catch (const c10::Error&) {
      return false;  // No shape function, or a wrong argument: then the kernel itself will say so.
    }
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!is_written(schema.arguments()[i])) continue;
      if (!arguments_[i].isTensor()) return false;
      const at::Tensor& argument = arguments_[i].toTensor();
      const at::Tensor& shape = meta[i].toTensor();
      if (argument.sizes() == shape.sizes()) continue;
      if (argument.numel() != 0 || !shape.is_contiguous()) return false;
      at::_ops::resize_::call(argument, c10::fromIntArrayRefSlow(shape.sizes()), std::nullopt);
    }
    return true;
  }

  // Those are drawn in program order, together with the CPU's own.
  bool draws_random_numbers() const {
    for (const c10::Argument& argument : op_.schema().arguments()) {
      if (argument.type()->str().starts_with("Generator")) return true;
    }
    return op_.hasTag(at::Tag::nondeterministic_seeded);
  }

  // True for operations that a real device makes the host wait for: their result is a number on the
  // host, or its shape depends on values.
  bool makes_the_program_wait() const {
    for (const c10::Argument& result : op_.schema().returns()) {
      const auto kind = result.type()->kind();
      if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) return true;
    }
    return op_.hasTag(at::Tag::dynamic_output_shape);
  }

  Work make_work(StreamQueue::Task task) const {
    Monitor& monitor = Runtime::get().monitor();
    return {.name = op_.schema().name(),
            .engine = Engine::kCompute,
            .cost = monitor.costs().cost_of(work_of(op_.schema(), arguments_)) + delay_,
            .accesses = accesses_of(op_.schema(), arguments_),
            .run = std::move(task)};
  }

  // `results`, if wanted, must outlive the task.
  StreamQueue::Task make_task(std::shared_ptr<const Stack> operands, Stack* results) const {
    // Sums depend on how they are shared out to threads; a worker's number is its own.
    return [op = op_, operands = std::move(operands), results, threads = at::get_num_threads()] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      if (at::get_num_threads() != threads) at::set_num_threads(threads);
      // A copy, so that the operands die here and not inside LibTorch, where the thread sanitizer
      // cannot see that nobody shares them any more.
      Stack stack = *operands;
      op.callBoxed(&stack);
      if (results != nullptr) *results = std::move(stack);
    };
  }

  void enqueue() {
    // The worker's alone from here on: the mapper's own references are gone before it starts.
    auto operands = std::make_shared<Stack>(ValueMapper(at::kCPU, to_operand)(arguments_));
    Runtime::get().monitor().submit(stream_, make_work(make_task(std::move(operands), nullptr)));
  }

  void run_and_wait(Stack& stack) {
    device_.counters.add(&SimulatorCounters::kernel_waits);
    Stack operands = ValueMapper(at::kCPU, to_operand)(arguments_);
    // An alias cannot grow: an empty `out` gets memory of its own, which is copied back.
    const auto& schema = op_.schema();
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!is_written(schema.arguments()[i]) || !operands[i].isTensor()) continue;
      const at::Tensor& operand = operands[i].toTensor();
      if (operand.numel() == 0) {
        operands[i] = at::Tensor(at::detail::empty_cpu(operand.sizes(), operand.scalar_type()));
      }
    }
    Stack results;
    Runtime::get().monitor().submit_and_wait(
        stream_, make_work(make_task(std::make_shared<const Stack>(operands), &results)),
        makes_the_program_wait());
    device_.errors.rethrow();

    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!is_written(schema.arguments()[i]) || !operands[i].isTensor()) continue;
      const at::Tensor& argument = arguments_[i].toTensor();
      const at::Tensor& operand = operands[i].toTensor();
      if (argument.numel() != 0 || operand.numel() == 0) continue;
      at::_ops::resize_::call(argument, c10::fromIntArrayRefSlow(operand.sizes()), std::nullopt);
      enqueue_copy(argument, operand);
    }
    ValueMapper to_device(c10::Device(kSimulated, index_),
                          [this](const at::Tensor& tensor) { return copy_to_device(tensor); });
    for (std::size_t i = 0; i < schema.returns().size(); ++i) {
      stack.push_back(is_written(schema.returns()[i]) ? written_argument(i)
                                                      : to_device(results[i]));
    }
  }

  at::Tensor copy_to_device(const at::Tensor& result) {
    const c10::DimVector strides = result.is_non_overlapping_and_dense()
                                       ? c10::DimVector(result.strides())
                                       : c10::contiguous_strides(result.sizes());
    at::Tensor copy = at::_ops::empty_strided::call(
        c10::fromIntArrayRefSlow(result.sizes()), c10::fromIntArrayRefSlow(strides),
        result.scalar_type(), at::kStrided, c10::Device(kSimulated, index_), std::nullopt);
    enqueue_copy(copy, result);
    return copy;
  }

  void enqueue_copy(const at::Tensor& to, const at::Tensor& from) {
    if (from.numel() == 0) return;
    // A part of the operation, which has had its cost.
    Work work{.name = op_.schema().name(),
              .engine = Engine::kNone,
              .cost = {},
              .accesses = {},
              .run = [to = alias_on_cpu(to), from] { copy_on_worker(to, from); }};
    add_access(work.accesses, to, Use::kWrite);
    Runtime::get().monitor().submit(stream_, std::move(work));
  }

  // The argument that the result at `result_index` is.
  const c10::IValue& written_argument(std::size_t result_index) const {
    const auto& schema = op_.schema();
    const auto& sets = schema.returns()[result_index].alias_info()->beforeSets();
    const auto& arguments = schema.arguments();
    const auto found = std::ranges::find_if(arguments, [&](const c10::Argument& argument) {
      return argument.alias_info() != nullptr && argument.alias_info()->beforeSets() == sets;
    });
    TORCH_INTERNAL_ASSERT(found != arguments.end());
    return arguments_[static_cast<std::size_t>(found - arguments.begin())];
  }

  const c10::OperatorHandle op_;
  const Stack arguments_;
  const c10::DeviceIndex index_;
  SimulatedDevice& device_;
  StreamQueue& stream_;
  Nanoseconds delay_{0};
};

void fallback(const c10::OperatorHandle& op, Stack* stack) {
  const auto count = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  Stack arguments(stack->end() - count, stack->end());
  stack->erase(stack->end() - count, stack->end());
  Call(op, std::move(arguments)).run(*stack);
}

}  // namespace

void register_fallback() {
  torch::Library& all = add_library("_");
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());

  // LibTorch would take these apart for a device without kernels of its own; the CPU does not, and
  // rounds differently.
  torch::Library& whole = add_library("aten");
  for (const char* name : {"_convolution", "convolution", "native_group_norm", "native_layer_norm",
                           "scaled_dot_product_attention"}) {
    whole.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
