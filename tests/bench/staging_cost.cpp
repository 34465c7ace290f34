// SPDX-License-Identifier: Apache-2.0
// What one cycle (load and offload) costs by three schemes, for growing numbers of tensors. Counts
// come from the simulated device; instructions from callgrind, on the CPU as the device, so that
// nothing but the schemes' own work and LibTorch's is counted. staging_table.py runs both.
//
//   staging_cost            prints the counts as CSV: scheme,tensors,allocations,copies,...
//   staging_cost --cycles   under callgrind: one dump for each scheme and number of tensors
#include <offstage/offstage.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <valgrind/callgrind.h>
#include <vector>

namespace {

using offstage::testing::Simulator;

constexpr int kSizes[] = {10, 100, 1000, 10000};
constexpr int kCycles = 4;
constexpr std::int64_t kElements = 16;

std::vector<offstage::NamedTensor> make_tensors(int count) {
  std::vector<offstage::NamedTensor> tensors;
  for (int i = 0; i < count; ++i) {
    tensors.push_back({"t" + std::to_string(i), at::full({kElements}, static_cast<float>(i))});
  }
  return tensors;
}

/// What both alternatives end with: `Tensor::set_data` refuses to go to a PrivateUse1 device.
void rebind(const at::Tensor& tensor, const at::Tensor& other) {
  tensor.unsafeGetTensorImpl()->shallow_copy_from(other.getIntrusivePtr());
}

/// `Module::to`, there and back: a loop over `Tensor::to`.
class PerTensor {
 public:
  PerTensor(std::vector<offstage::NamedTensor> tensors, c10::Device device)
      : tensors_(std::move(tensors)), device_(device) {}
  void load() { move_to(device_); }
  void offload() { move_to(c10::Device(c10::kCPU)); }

 private:
  void move_to(c10::Device device) {
    for (const auto& named : tensors_) {
      rebind(named.tensor, named.tensor.to(device, named.tensor.scalar_type(),
                                           /*non_blocking=*/false, /*copy=*/true));
    }
  }

  std::vector<offstage::NamedTensor> tensors_;
  c10::Device device_;
};

/// One byte tensor and one copy a storage, then a view for each tensor by `set_`.
class PerStorage {
 public:
  PerStorage(std::vector<offstage::NamedTensor> tensors, c10::Device device)
      : tensors_(std::move(tensors)), device_(device) {
    for (const auto& named : tensors_) {
      masters_.push_back(named.tensor.detach());
      bytes_.push_back(at::empty({0}, at::kByte).set_(named.tensor.storage()));
    }
  }
  void load() {
    std::vector<at::Tensor> storages;
    for (const at::Tensor& bytes : bytes_) {
      storages.push_back(at::empty(bytes.sizes(), bytes.options().device(device_)));
    }
    for (std::size_t i = 0; i < bytes_.size(); ++i) storages[i].copy_(bytes_[i], true);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const at::Tensor& master = masters_[i];
      rebind(tensors_[i].tensor, at::empty({0}, master.options().device(device_))
                                     .set_(storages[i].storage(), master.storage_offset(),
                                           master.sizes(), master.strides()));
    }
  }
  void offload() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) rebind(tensors_[i].tensor, masters_[i]);
  }

 private:
  std::vector<offstage::NamedTensor> tensors_;
  c10::Device device_;
  std::vector<at::Tensor> masters_;
  std::vector<at::Tensor> bytes_;
};

class Offstage {
 public:
  Offstage(std::vector<offstage::NamedTensor> tensors, c10::Device device)
      : stager_(std::move(tensors), offstage::DeviceContext::create(device)) {
    if (device.is_cpu()) return;
    stager_.set_cache(std::make_shared<offstage::BoundedAllocatorCache>(
        device, std::make_shared<offstage::GenericTelemetry>(),
        std::make_shared<offstage::AlwaysRetention>()));
  }
  void load() { stager_.load(); }
  void offload() { stager_.offload(); }

 private:
  offstage::PinnedModuleStager stager_;
};

template <class Scheme>
void count(const char* name, int size) {
  Simulator& simulator = Simulator::install();
  Scheme scheme(make_tensors(size), simulator.device());
  scheme.load();
  scheme.offload();
  const auto before = simulator.counters();
  scheme.load();
  scheme.offload();
  const auto moved = simulator.counters() - before;
  std::printf("%s,%d,%lld,%lld,%lld,%lld,%lld\n", name, size,
              static_cast<long long>(moved.allocations),
              static_cast<long long>(moved.copies_h2d + moved.copies_d2h),
              static_cast<long long>(moved.events_recorded),
              static_cast<long long>(moved.stream_waits), static_cast<long long>(moved.host_waits));
}

template <class Scheme>
void measure(const char* name, int size) {
  Scheme scheme(make_tensors(size), c10::Device(c10::kCPU));
  scheme.load();
  scheme.offload();
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    scheme.load();
    scheme.offload();
  }
  const std::string label =
      std::string(name) + "," + std::to_string(size) + "," + std::to_string(kCycles);
  CALLGRIND_DUMP_STATS_AT(label.c_str());
  CALLGRIND_STOP_INSTRUMENTATION;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const bool cycles = argc == 2 && std::strcmp(argv[1], "--cycles") == 0;
  if (argc > 1 && !cycles) {
    std::fprintf(stderr, "usage: staging_cost [--cycles]\n");
    return 2;
  }
  if (!cycles) std::printf("scheme,tensors,allocations,copies,records,stream waits,host waits\n");
  for (const int size : kSizes) {
    const auto run = [&]<class Scheme>(const char* name, Scheme*) {
      if (cycles) {
        measure<Scheme>(name, size);
      } else {
        count<Scheme>(name, size);
      }
    };
    run("offstage", static_cast<Offstage*>(nullptr));
    run("per storage", static_cast<PerStorage*>(nullptr));
    run("per tensor", static_cast<PerTensor*>(nullptr));
  }
}
