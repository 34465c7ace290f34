// SPDX-License-Identifier: Apache-2.0
// Operators that a program has registered itself, for the CPU alone.
#include "simulator_compute_fixture.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace offstage::testing {
namespace {

// What the CPU kernels see of the thread that they run on.
at::Tensor surroundings(const at::Tensor& x) {
  return at::full_like(x, (c10::GradMode::is_enabled() ? 1000 : 0) + at::get_num_threads());
}

std::tuple<at::Tensor, at::Tensor> sometimes(const at::Tensor& x) {
  return {x + 1, at::Tensor()};
}

at::Tensor draw(const at::Tensor& x) {
  return x + at::rand_like(x);
}

// Writes its result in the layout of images, or in rows if `out` has that layout.
at::Tensor& images_out(const at::Tensor& x, at::Tensor& out) {
  const bool are_images = out.dim() == 4 && out.is_contiguous(at::MemoryFormat::ChannelsLast);
  out.resize_(x.sizes(),
              are_images ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast);
  return out.copy_(x * 2);
}

TORCH_LIBRARY(offstage_test, library) {
  library.def("surroundings(Tensor x) -> Tensor");
  library.def("sometimes(Tensor x) -> (Tensor, Tensor)");
  library.def("draw(Tensor x) -> Tensor", {at::Tag::nondeterministic_seeded});
  library.def("images.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)");
}
TORCH_LIBRARY_IMPL(offstage_test, CPU, library) {
  library.impl("surroundings", &surroundings);
  library.impl("sometimes", &sometimes);
  library.impl("draw", &draw);
  library.impl("images.out", &images_out);
}
TORCH_LIBRARY_IMPL(offstage_test, Meta, library) {
  library.impl("surroundings", [](const at::Tensor& x) { return at::empty_like(x); });
  library.impl("sometimes", &sometimes);
  library.impl("draw", [](const at::Tensor& x) { return at::empty_like(x); });
  library.impl("images.out", &images_out);
}

template <class Signature>
auto op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).template typed<Signature>();
}

using SimulatorCustomOperatorsTest = SimulatorComputeTest;

TEST_F(SimulatorCustomOperatorsTest, AreQueuedIfTheyHaveAShapeFunction) {
  const auto call = op<at::Tensor(const at::Tensor&)>("offstage_test::surroundings");
  expect_queued({at::ones({3})}, [&](const Tensors& t) { return call.call(t[0]); });
}

// Kernels take other ways where gradients may be wanted, and share sums out to threads.
TEST_F(SimulatorCustomOperatorsTest, SeeTheGradModeAndTheThreadsOfTheCaller) {
  const auto call = op<at::Tensor(const at::Tensor&)>("offstage_test::surroundings");
  inference_.reset();
  const int threads = at::get_num_threads();
  const at::Tensor x = at::ones({3}).to(simulator_.device());
  for (const int count : {1, 3}) {
    at::set_num_threads(count);
    for (const bool gradients : {true, false}) {
      const c10::AutoGradMode mode(gradients);
      expect_same(call.call(x), at::full({3}, (gradients ? 1000.0 : 0.0) + count));
    }
  }
  at::set_num_threads(threads);
}

TEST_F(SimulatorCustomOperatorsTest, MayReturnUndefinedTensors) {
  const auto call =
      op<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&)>("offstage_test::sometimes");
  const auto [sum, nothing] = call.call(at::ones({3}).to(simulator_.device()));
  expect_same(sum, at::full({3}, 2.0));
  EXPECT_FALSE(nothing.defined());
}

// The CPU's generator is asked in program order, so nothing is drawn on a worker.
TEST_F(SimulatorCustomOperatorsTest, ThatDrawRandomNumbersDrawThemBeforeTheCallReturns) {
  const auto call = op<at::Tensor(const at::Tensor&)>("offstage_test::draw");
  expect_same({at::zeros({3})}, [&](const Tensors& t) {
    at::manual_seed(5);
    return call.call(t[0]);
  });
  EXPECT_EQ(work_.kernel_waits, 1);
}

TEST_F(SimulatorCustomOperatorsTest, MayGiveAnOutArgumentAnotherLayout) {
  const auto call = op<at::Tensor&(const at::Tensor&, at::Tensor&)>("offstage_test::images", "out");
  for (const at::IntArrayRef sizes :
       {at::IntArrayRef({0}), at::IntArrayRef({1, 2, 3, 3}), at::IntArrayRef({7})}) {
    at::Tensor out = at::empty(sizes, at::TensorOptions().device(simulator_.device()));
    const at::Tensor x = at::arange(18.0).view({1, 2, 3, 3});
    for (int i = 0; i < 2; ++i) {
      call.call(x.to(simulator_.device()), out);
      EXPECT_EQ(out.sizes(), x.sizes());
      EXPECT_TRUE(at::equal(out.cpu(), x * 2));
      out = out.contiguous(at::MemoryFormat::ChannelsLast);
    }
  }
}

}  // namespace
}  // namespace offstage::testing
