// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What tests of staging share: the simulated accelerator, and modules small enough to look
/// through.

#include <offstage/base/bytes.hpp>
#include <offstage/base/error.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/device/generic_telemetry.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>
#include <offstage/retention/fixed_retention.hpp>
#include <offstage/staging/pinned_module_stager.hpp>
#include <offstage/testing/recording_sink.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace offstage {

/// Starts from an idle simulator and leaves it without live device memory.
class StagingTest : public ::testing::Test {
 protected:
  StagingTest() { simulator.reset(); }

  void TearDown() override {
    EXPECT_NO_THROW(simulator.reset()) << "device memory was left behind";
  }

  c10::Device device() const { return simulator.device(); }

  testing::SimulatorCounters counters() const { return simulator.counters(); }

  c10::Stream new_stream() const {
    return c10::impl::VirtualGuardImpl(device().type()).getNewStream(device());
  }

  std::shared_ptr<PinnedModuleStager> stage(std::vector<NamedTensor> tensors,
                                            StagerOptions options = {}) {
    return std::make_shared<PinnedModuleStager>(std::move(tensors), context, std::move(options));
  }

  /// A cache that keeps everything, so that offloads neither release nor wait.
  std::shared_ptr<BoundedAllocatorCache> retaining_cache() const {
    return std::make_shared<BoundedAllocatorCache>(device(), telemetry,
                                                   std::make_shared<AlwaysRetention>(), sink);
  }

  /// `count` float tensors of `elements` elements: tensor i holds the values i, i, i, ...
  static std::vector<NamedTensor> numbered_tensors(int count, std::int64_t elements) {
    std::vector<NamedTensor> tensors;
    for (int i = 0; i < count; ++i) {
      tensors.push_back({"t" + std::to_string(i), at::full({elements}, static_cast<float>(i))});
    }
    return tensors;
  }

  static void expect_numbered(const std::vector<NamedTensor>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor host = tensors[i].tensor.cpu();
      ASSERT_TRUE(at::equal(host, at::full_like(host, static_cast<float>(i)))) << tensors[i].path;
    }
  }

  std::size_t count_events(EventKind kind) const { return sink->count(kind); }

  testing::Simulator& simulator = testing::Simulator::install();
  std::shared_ptr<testing::RecordingSink> sink = std::make_shared<testing::RecordingSink>();
  std::shared_ptr<TelemetryBackend> telemetry = std::make_shared<GenericTelemetry>();
  std::shared_ptr<DeviceContext> context = DeviceContext::create(
      simulator.device(),
      {.host_memory = simulator.host_memory(), .telemetry = telemetry, .sink = sink});
};

/// Takes its memory from another provider; refuses to pin from the n-th call on, and to unpin on
/// request.
class RefusingHostMemory final : public HostMemory {
 public:
  RefusingHostMemory(std::shared_ptr<HostMemory> memory, int pins_allowed)
      : memory_(std::move(memory)), pins_allowed_(pins_allowed) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "refusing"; }
  [[nodiscard]] bool pins() const noexcept override { return true; }
  [[nodiscard]] void* allocate(std::int64_t bytes) override {
    ++live;
    return memory_->allocate(bytes);
  }
  void free(void* data, std::int64_t bytes) noexcept override {
    --live;
    memory_->free(data, bytes);
  }
  void pin(void* data, std::int64_t bytes) override {
    if (pins_allowed_-- <= 0) throw HostMemoryError("no more pinned memory");
    memory_->pin(data, bytes);
  }
  void unpin(void* data, std::int64_t bytes) override {
    if (unpin_fails) throw HostMemoryError("the device does not answer");
    memory_->unpin(data, bytes);
  }

  int live = 0;
  bool unpin_fails = false;

 private:
  const std::shared_ptr<HostMemory> memory_;
  int pins_allowed_;
};

}  // namespace offstage
