// SPDX-License-Identifier: Apache-2.0
#include "device_choice.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <dlfcn.h>
#include <stdexcept>

namespace text_to_image {

namespace {

/// Why there is no CUDA device; empty if there is one, which can be used from now on.
std::string why_no_cuda() {
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
      ::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* const cause = ::dlerror();
    return std::string("LibTorch's CUDA part cannot be loaded (") +
           (cause == nullptr ? "no reason given" : cause) +
           "); `pip install torch==2.11.0` in an environment of your own and OFFSTAGE_LIBTORCH set "
           "to it bring the whole of it";
  }
  const auto* const cuda = c10::impl::hasDeviceGuardImpl(c10::kCUDA)
                               ? c10::impl::getDeviceGuardImpl(c10::kCUDA)
                               : nullptr;
  if (cuda == nullptr || cuda->deviceCount() == 0) return "this machine has none";
  return "";
}

}  // namespace

DeviceChoice choose_device(std::string_view wish) {
  if (wish == "cpu") return {DeviceKind::kCpu, ""};
  if (wish == "sim") return {DeviceKind::kSimulated, ""};
  if (wish != "cuda" && wish != "auto") {
    throw std::runtime_error("--device: '" + std::string(wish) +
                             "' is none of auto, cuda, sim, cpu");
  }
  const std::string reason = why_no_cuda();
  if (reason.empty()) return {DeviceKind::kCuda, ""};
  if (wish == "cuda") throw std::runtime_error("--device cuda: no CUDA device: " + reason);
  return {DeviceKind::kSimulated,
          "no CUDA device: " + reason + ". The simulated accelerator is used."};
}

}  // namespace text_to_image
