// SPDX-License-Identifier: Apache-2.0
#include <offstage/offstage.hpp>
#include <offstage/testing/simulator.hpp>

#include <torch/nn/modules/linear.h>

#include <cstdio>

using namespace offstage;  // Two components of 48 MiB take turns on a device that has 64 MiB.
int main() {
  const c10::InferenceMode guard;
  auto& gpu = testing::Simulator::install({.capacity_bytes = 64 * kMiB});  // or a real device
  const auto context = DeviceContext::create(gpu.device());
  const auto cache = std::make_shared<BoundedAllocatorCache>(gpu.device(), context->telemetry());
  const auto stage = [&](const char* name, const torch::nn::Linear& module) {
    const auto stager = std::make_shared<PinnedModuleStager>(named_tensors(module), context);
    stager->set_cache(cache);
    return Component(name, stager, {}, cache);
  };
  torch::nn::Linear encoder(3072, 4096), decoder(4096, 3072);
  const at::Tensor prompt = at::ones({1, 3072});
  const at::Tensor expected = decoder->forward(encoder->forward(prompt));  // both on the CPU
  Component first = stage("encoder", encoder), second = stage("decoder", decoder);
  const auto latents = run(first, [&] { return encoder->forward(prompt.to(gpu.device())); });
  const auto picture = run(second, [&] { return decoder->forward(latents); });
  std::printf("same bytes as on the CPU: %s\n", at::equal(picture.cpu(), expected) ? "yes" : "no");
  std::printf("copied to the device: %.0f MiB, most of it in use at once: %.0f MiB\n",
              double(gpu.counters().bytes_h2d) / kMiB, double(gpu.memory().peak_allocated) / kMiB);
}
