// SPDX-License-Identifier: Apache-2.0
#include "kernel_library.hpp"
#include "kernel_work.hpp"
#include "operands.hpp"
#include "registration.hpp"
#include "result_shapes.hpp"
#include "runtime.hpp"
#include "tensor_access.hpp"
#include "tensor_alias.hpp"
#include "value_mapper.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/resize_ops.h>
#include <c10/core/GradMode.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

using torch::jit::Stack;

// Operations that make their result as large as their operands before they reduce it.
bool needs_a_result_of_its_own(const c10::OperatorHandle& op) {
  const std::string_view name = op.schema().name();
  return name == "aten::mse_loss" || name == "aten::smooth_l1_loss";
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
    check_host_operands(op_, arguments_);
    describe();
    Runtime::get().monitor().check_lifetimes(stream_, work_);
    if (can_be_queued()) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      enqueue();
      for (std::size_t i = 0; i < op_.schema().returns().size(); ++i) {
        stack.push_back(results_.empty() ? written_argument(i) : c10::IValue(results_[i]));
      }
    } else {
      const at::AutoDispatchBelowADInplaceOrView guard;
      run_and_wait(stack);
    }
  }

 private:
  // True if the shape of every result is known before the computation. `out` arguments get the
  // shape that they will have, and results that are new tensors are made.
  bool can_be_queued() {
    const auto& schema = op_.schema();
    const auto written = std::ranges::count_if(schema.returns(), &is_written);
    if (written != 0 && written != std::ssize(schema.returns())) return false;
    if (draws_random_numbers()) return false;
    Stack meta = ValueMapper(at::kMeta, to_meta)(arguments_);
    std::optional<std::vector<at::Tensor>> shapes;
    try {
      const at::AutoDispatchBelowADInplaceOrView guard;
      shapes = shapes_of_results(meta);
    } catch (const c10::Error&) {
      return false;  // No shape function, or a wrong argument: then the kernel itself will say so.
    }
    if (!shapes) return false;
    return written == 0 ? make_results(*shapes) : shape_written_arguments(meta);
  }

  // Written arguments in `meta` get their shapes too.
  std::optional<std::vector<at::Tensor>> shapes_of_results(Stack& meta) {
    const auto& returns = op_.schema().returns();
    const Stack operands = ValueMapper(at::kCPU, to_operand)(arguments_);
    if (auto shapes = result_shapes(op_, operands, meta)) {
      for (std::size_t i = 0; i < returns.size(); ++i) {
        if (is_written(returns[i])) meta[written_index(i)] = shapes->at(i);
      }
      return shapes;
    }
    if (!op_.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return std::nullopt;
    if (needs_a_result_of_its_own(op_))
      meta.back() =
          to_meta(at::Tensor(at::detail::empty_cpu({0}, meta.back().toTensor().scalar_type())));
    Stack results = meta;
    op_.callBoxed(&results);
    std::vector<at::Tensor> shapes;
    for (const c10::IValue& result : results) {
      if (!result.isTensor()) return std::nullopt;
      shapes.push_back(result.toTensor());
    }
    return shapes;
  }

  bool make_results(const std::vector<at::Tensor>& shapes) {
    for (const at::Tensor& shape : shapes) {
      if (!shape.defined() || shape.layout() != at::kStrided) return false;
    }
    for (const at::Tensor& shape : shapes) {
      results_.push_back(at::_ops::empty_strided::call(
          c10::fromIntArrayRefSlow(shape.sizes()), c10::fromIntArrayRefSlow(shape.strides()),
          shape.scalar_type(), at::kStrided, c10::Device(kSimulated, index_), std::nullopt));
    }
    return !results_.empty();
  }

  bool shape_written_arguments(const Stack& meta) {
    const auto& schema = op_.schema();
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!is_written(schema.arguments()[i])) continue;
      if (!arguments_[i].isTensor()) return false;
      const at::Tensor& argument = arguments_[i].toTensor();
      const at::Tensor& shape = meta[i].toTensor();
      const bool fits = argument.sizes() == shape.sizes();
      if (fits && argument.strides() == shape.strides()) continue;
      if (fits || !shape.is_contiguous()) return false;  // The kernel chooses another layout.
      at::_ops::resize_::call(argument, c10::fromIntArrayRefSlow(shape.sizes()), std::nullopt);
      describe();
    }
    return true;
  }

  // Those are drawn in program order, together with the CPU's own.
  bool draws_random_numbers() const {
    for (const c10::Argument& argument : op_.schema().arguments()) {
      if (argument.type()->str().starts_with("Generator")) return true;
    }
    const auto dropout = op_.schema().argumentIndexWithName("dropout_p");
    if (dropout && argument(*dropout).toDouble() == 0) return false;
    const auto between_layers = op_.schema().argumentIndexWithName("dropout");
    const auto train = op_.schema().argumentIndexWithName("train");
    if (between_layers && train && argument(*between_layers).isDouble()) {
      return argument(*train).toBool() && argument(*between_layers).toDouble() != 0;
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

  const c10::IValue& argument(int index) const {
    return arguments_[static_cast<std::size_t>(index)];
  }

  void describe() {
    Monitor& monitor = Runtime::get().monitor();
    work_.name = op_.schema().name();
    work_.engine = Engine::kCompute;
    work_.cost = monitor.costs().cost_of(work_of(op_.schema(), arguments_)) + delay_;
    work_.accesses = accesses_of(op_.schema(), arguments_);
  }

  Work make_work(StreamQueue::Task task, bool waits) {
    Work work = std::move(work_);
    work.run = std::move(task);
    work.counted = [this, waits] {
      device_.counters.add(&SimulatorCounters::kernels);
      if (waits) device_.counters.add(&SimulatorCounters::kernel_waits);
    };
    return work;
  }

  // `results`, if wanted, must outlive the task.
  StreamQueue::Task make_task(std::shared_ptr<const Stack> operands, Stack* results) const {
    // Sums depend on how they are shared out to threads; a worker's number is its own.
    // And some kernels take another way where gradients may be wanted.
    return [op = op_, operands = std::move(operands), results, threads = at::get_num_threads(),
            gradients = c10::GradMode::is_enabled()] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      const c10::AutoGradMode mode(gradients);
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
    std::vector<at::Tensor> targets;
    for (const at::Tensor& result : results_) targets.push_back(alias_on_cpu(result));
    if (needs_a_result_of_its_own(op_)) {
      c10::IValue& out = operands->back();
      targets.push_back(out.toTensor());
      out = at::Tensor(at::detail::empty_cpu({0}, targets.back().scalar_type()));
    }
    if (targets.empty()) {
      Runtime::get().monitor().submit(
          stream_, make_work(make_task(std::move(operands), nullptr), /*waits=*/false));
      return;
    }
    auto computed = std::make_shared<Stack>();
    Work work = make_work(
        [op = op_, compute = make_task(std::move(operands), computed.get()), computed,
         targets = std::move(targets)] {
          compute();
          for (std::size_t i = 0; i < targets.size(); ++i) {
            const at::Tensor& result = computed->at(i).toTensor();
            TORCH_CHECK(result.sizes() == targets[i].sizes() &&
                            result.scalar_type() == targets[i].scalar_type(),
                        "simulated accelerator: ", op.operator_name(), " returned ", result.sizes(),
                        " instead of ", targets[i].sizes());
            copy_on_worker(targets[i], result);
          }
          computed->clear();
        },
        /*waits=*/false);
    for (const at::Tensor& result : results_) add_access(work.accesses, result, Use::kWrite);
    Runtime::get().monitor().submit(stream_, std::move(work));
  }

  void run_and_wait(Stack& stack) {
    Stack operands = ValueMapper(at::kCPU, to_operand)(arguments_);
    // An alias cannot grow: an `out` has memory of its own, which is copied back.
    const auto& schema = op_.schema();
    const auto has_own_memory = [&](std::size_t i) {
      const c10::Argument& argument = schema.arguments()[i];
      return argument.is_out() && arguments_[i].isTensor();
    };
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!has_own_memory(i)) continue;
      const at::Tensor& operand = operands[i].toTensor();
      operands[i] = at::Tensor(at::detail::empty_cpu(operand.sizes(), operand.scalar_type()));
    }
    Stack results;
    Runtime::get().monitor().submit_and_wait(
        stream_,
        make_work(make_task(std::make_shared<const Stack>(operands), &results), /*waits=*/true),
        makes_the_program_wait());
    Runtime::get().throw_errors(index_);

    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!has_own_memory(i)) continue;
      const at::Tensor& argument = arguments_[i].toTensor();
      const at::Tensor& operand = operands[i].toTensor();
      if (argument.sizes() != operand.sizes()) {
        at::_ops::resize_::call(argument, c10::fromIntArrayRefSlow(operand.sizes()), std::nullopt);
      }
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
    TORCH_CHECK(result.layout() == at::kStrided, "simulated accelerator: ", op_.operator_name(),
                " returns a tensor that is ", result.layout(), ", and it has only strided ones");
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
    // A part of the operation, which has had its cost.
    Work work{.name = op_.schema().name(),
              .engine = Engine::kNone,
              .cost = {},
              .accesses = {},
              .run = [to = alias_on_cpu(to), from] { copy_on_worker(to, from); }};
    add_access(work.accesses, to, Use::kWrite);
    Runtime::get().monitor().submit(stream_, std::move(work));
  }

  // Where the argument is that the result at `result_index` is.
  std::size_t written_index(std::size_t result_index) const {
    const auto& schema = op_.schema();
    const auto& sets = schema.returns()[result_index].alias_info()->beforeSets();
    const auto& arguments = schema.arguments();
    const auto found = std::ranges::find_if(arguments, [&](const c10::Argument& argument) {
      return argument.alias_info() != nullptr && argument.alias_info()->beforeSets() == sets;
    });
    TORCH_INTERNAL_ASSERT(found != arguments.end());
    return static_cast<std::size_t>(found - arguments.begin());
  }

  const c10::IValue& written_argument(std::size_t result_index) const {
    return arguments_[written_index(result_index)];
  }

  const c10::OperatorHandle op_;
  const Stack arguments_;
  std::vector<at::Tensor> results_;  // New tensors that a queued task will fill.
  const c10::DeviceIndex index_;
  SimulatedDevice& device_;
  StreamQueue& stream_;
  Nanoseconds delay_{0};
  Work work_;  // Without what is to be run.
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
  for (const char* name : {"_convolution",      "convolution",       "convolution_backward",
                           "native_group_norm", "native_layer_norm", "scaled_dot_product_attention",
                           "lstm.input",        "lstm.data",         "gru.input",
                           "gru.data",          "rnn_tanh.input",    "rnn_tanh.data",
                           "rnn_relu.input",    "rnn_relu.data",     "lstm_cell",
                           "gru_cell",          "rnn_tanh_cell",     "rnn_relu_cell",
                           "silu_backward",     "mish_backward"}) {
    whole.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
