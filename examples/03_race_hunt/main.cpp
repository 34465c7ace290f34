// SPDX-License-Identifier: Apache-2.0
//
// A pipeline that prefetches the weights of its decoder by hand, and forgets to wait for them. On a
// GPU it draws noise now and then; here it fails every time, and says what is missing.
#include <offstage/testing/simulator.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdio>

using offstage::testing::RaceError;
using offstage::testing::Simulator;

namespace {

struct Weights {
  at::Tensor encoder = at::rand({64, 64}).pin_memory();
  at::Tensor decoder = at::rand({64, 64}).pin_memory();
};

/// What has to come out, computed on the CPU.
at::Tensor draw_on_cpu(const Weights& weights, const at::Tensor& prompt) {
  return at::linear(at::linear(prompt, weights.encoder), weights.decoder);
}

/// The decoder's weights travel on a second stream while the encoder computes.
at::Tensor draw(const Weights& weights, const at::Tensor& prompt, c10::Device device, bool waits) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream compute = guard.getStream(device);
  const c10::Stream copies = guard.getNewStream(device);

  const at::Tensor encoder = weights.encoder.to(device, /*non_blocking=*/true);
  at::Tensor decoder;
  c10::Event ready(device.type());
  {
    const c10::StreamGuard on_copies(copies);
    decoder = weights.decoder.to(device, /*non_blocking=*/true);
    ready.record(copies);
  }
  const at::Tensor hidden = at::linear(prompt.to(device), encoder);
  if (waits) ready.block(compute);  // The line that is so easily forgotten.
  const at::Tensor picture = at::linear(hidden, decoder);
  decoder.record_stream(compute);  // It is freed here, and came from the other stream.
  return picture.cpu();
}

}  // namespace

int main() {
  const c10::Device device = Simulator::install().device();
  const Weights weights;
  const at::Tensor prompt = at::rand({4, 64});

  bool found = false;
  try {
    (void)draw(weights, prompt, device, /*waits=*/false);
  } catch (const RaceError& race) {
    found = true;
    std::printf("without the wait: %s\n", race.what());
  }
  const bool same =
      draw(weights, prompt, device, /*waits=*/true).equal(draw_on_cpu(weights, prompt));
  std::printf("with the wait: no race, and %s\n", same ? "the bytes of the CPU" : "wrong bytes");
  return found && same ? 0 : 1;
}
