// SPDX-License-Identifier: Apache-2.0
// Telemetry for a device whose allocator LibTorch's generic statistics do not reach. The class is
// what docs/retention.md shows; the program lets a cache decide with it.
#include <offstage/offstage.hpp>

#include <c10/core/DeviceType.h>

#include <cstdio>
#include <string>

// Stands for the header of the device's own runtime: calls that return 0, or the number of an
// error.
namespace acme {

struct PoolStats {
  std::int64_t held = 0;
  std::int64_t used = 0;
  std::int64_t split = 0;
};

constexpr std::int64_t kMemory = 16 * offstage::kGiB;
PoolStats pool;

int pool_stats(int /*device*/, PoolStats* stats) {
  *stats = pool;
  return 0;
}
int mem_info(int /*device*/, std::int64_t* free, std::int64_t* total) {
  *free = kMemory - pool.held;
  *total = kMemory;
  return 0;
}
int pool_trim(int /*device*/) {
  pool.held = pool.used + pool.split;
  return 0;
}

}  // namespace acme

namespace {

class AcmeModule final : public offstage::DeviceModule {
 public:
  offstage::AllocatorStats memory_stats(c10::DeviceIndex device) override {
    acme::PoolStats stats;
    check(acme::pool_stats(device, &stats), "pool_stats");
    return {.reserved = stats.held, .allocated = stats.used, .inactive_split = stats.split};
  }

  offstage::DeviceMemory memory_info(c10::DeviceIndex device) override {
    offstage::DeviceMemory memory;
    check(acme::mem_info(device, &memory.free, &memory.total), "mem_info");
    return memory;
  }

  void empty_cache(c10::DeviceIndex device) override {
    check(acme::pool_trim(device), "pool_trim");
  }

 private:
  static void check(int status, const std::string& call) {
    if (status == 0) return;
    throw offstage::TelemetryError("acme: " + call + " failed with " + std::to_string(status));
  }
};

}  // namespace

int main() {
  c10::register_privateuse1_backend("acme");  // The plug-in does this.
  const c10::Device device(c10::DeviceType::PrivateUse1, 0);

  offstage::TelemetryRegistry registry;
  registry.register_module("acme", std::make_shared<AcmeModule>());
  offstage::BoundedAllocatorCache cache(device, registry.resolve(device.type()),
                                        std::make_shared<offstage::LearnedRetention>());

  for (int round = 0; round < 3; ++round) {
    acme::pool.held = 3 * offstage::kGiB;  // A component of 3 GiB has come and gone.
    cache.release_if_needed();
  }
  std::printf("%s", offstage::to_text(cache.decisions()).c_str());
  const auto counters = cache.counters();
  const bool as_documented = counters.releases == 1 && counters.telemetry_failures[0] == 0;
  return as_documented ? 0 : 1;
}
