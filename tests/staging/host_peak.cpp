// SPDX-License-Identifier: Apache-2.0
// host_peak COUNT BYTES: stages that many tensors of that many bytes, and compares the most memory
// that the process ever had with the weights and the largest storage. 0 if there is no more than
// 64 MiB or 5 % between them.
#include <offstage/base/bytes.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/staging/pinned_module_stager.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/ops/full.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace {

/// A figure of /proc/self/status, in bytes.
std::int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    std::int64_t kilobytes = 0;
    if (word == key && file >> kilobytes) return kilobytes * offstage::kKiB;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::int64_t count = std::stoll(argv[1]);
  const std::int64_t bytes = std::stoll(argv[2]);
  auto& simulator = offstage::testing::Simulator::install();
  const auto context =
      offstage::DeviceContext::create(simulator.device(), {.host_memory = simulator.host_memory()});
  // Once with little, so that what LibTorch takes at its first use is not counted.
  static_cast<void>(
      offstage::PinnedModuleStager({{"warm", at::full({4096}, 1, at::kByte)}}, context));

  const std::int64_t base = status_bytes("VmRSS:");
  std::vector<offstage::NamedTensor> tensors;
  for (std::int64_t i = 0; i < count; ++i) {
    tensors.push_back({std::to_string(i), at::full({bytes}, i % 251, at::kByte)});
  }
  const std::int64_t weights = status_bytes("VmRSS:") - base;
  const offstage::PinnedModuleStager stager(tensors, context);
  const std::int64_t peak = status_bytes("VmHWM:") - base;
  const std::int64_t after = status_bytes("VmRSS:") - base;

  const std::int64_t allowed = weights + bytes + std::max(64 * offstage::kMiB, weights / 20);
  std::printf(
      "%lld tensors of %lld bytes: %.1f MiB loaded, %.1f MiB at most, %.1f MiB staged, "
      "%.1f MiB allowed\n",
      static_cast<long long>(count), static_cast<long long>(bytes),
      static_cast<double>(weights) / offstage::kMiB, static_cast<double>(peak) / offstage::kMiB,
      static_cast<double>(after) / offstage::kMiB, static_cast<double>(allowed) / offstage::kMiB);
  const bool is_whole = tensors.back().tensor.data_ptr<std::uint8_t>()[bytes - 1] ==
                        static_cast<std::uint8_t>((count - 1) % 251);
  return is_whole && stager.pinned_bytes() >= count * bytes && peak <= allowed ? 0 : 1;
}
