// SPDX-License-Identifier: Apache-2.0
// What a user's program is to the package tests. It has things in it that the library's own warning
// flags would refuse: they must not reach this file.
#include <offstage/offstage.hpp>
#ifdef CONSUMER_HAS_DOUBLES
#include <offstage/staging/script_module.hpp>
#include <offstage/testing/simulator.hpp>
#endif
#ifdef CONSUMER_HAS_LOG
#include <offstage/observe/log_sink.hpp>
#endif
#ifdef CONSUMER_HAS_CUDA
#include <offstage/device/cuda_telemetry.hpp>
#endif

#include <ATen/ops/ones.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  const unsigned long count = (unsigned long)argc;  // -Wold-style-cast
  int narrowed = count * 1024;                      // -Wconversion
  (void)argv;

#ifdef CONSUMER_HAS_DOUBLES
  const c10::Device device = offstage::testing::Simulator::install().device();
  auto* volatile audit = &offstage::audit_script;  // Is there to be linked.
  (void)audit;
#else
  const c10::Device device(c10::kCPU);
#endif
#ifdef CONSUMER_HAS_LOG
  offstage::LogSink log("consumer");
  log.on_event({.kind = offstage::EventKind::kGradEnabled});
#endif
#ifdef CONSUMER_HAS_CUDA
  std::printf("telemetry: %s\n", std::string(offstage::CudaTelemetry().name()).c_str());
#endif
  auto context = offstage::DeviceContext::create(device);
  const at::Tensor weight = at::ones({narrowed});
  offstage::PinnedModuleStager stager({{"weight", weight}}, context);
  stager.load();
  const bool loaded = stager.is_loaded() && weight.device() == device;
  stager.offload();
  try {
    offstage::ComponentPolicy::parse("[1]");
  } catch (const offstage::PolicyError& error) {
    std::printf("offstage %d.%d: loaded %s, %s\n", OFFSTAGE_VERSION_MAJOR, OFFSTAGE_VERSION_MINOR,
                loaded ? "yes" : "no", error.what());
    return loaded ? 0 : 1;
  }
  return 1;
}
