// SPDX-License-Identifier: Apache-2.0
// What a stager does in a thread that is cancelled: wherever others let the thread end, a move and
// a destruction are finished first.
#include "../base/cancelled_thread.hpp"
#include "staging_fixture.hpp"

namespace offstage {
namespace {

class CancellableSink final : public EventSink {
 public:
  void on_event(const Event& /*event*/) noexcept override {
    ++events;
    cancellation_point();
  }
  int events = 0;
};

/// Host memory whose calls of the driver are cancellation points on request.
class CancellableHostMemory final : public HostMemory {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "cancellable"; }
  [[nodiscard]] bool pins() const noexcept override { return true; }
  void free(void* data, std::int64_t bytes) noexcept override {
    --live;
    HostMemory::free(data, bytes);
  }
  [[nodiscard]] void* allocate(std::int64_t bytes) override {
    ++live;
    return HostMemory::allocate(bytes);
  }
  void pin(void* /*data*/, std::int64_t /*bytes*/) override {
    if (cancels_pin) cancellation_point();
  }
  void unpin(void* /*data*/, std::int64_t /*bytes*/) override {
    if (cancels_unpin) cancellation_point();
  }
  bool cancels_pin = false;
  bool cancels_unpin = false;
  int live = 0;
};

class PinnedModuleStagerCancellationTest : public StagingTest {
 protected:
  PinnedModuleStagerCancellationTest() {
    context = DeviceContext::create(
        device(), {.host_memory = memory, .telemetry = telemetry, .sink = cancellable});
  }
  std::shared_ptr<CancellableSink> cancellable = std::make_shared<CancellableSink>();
  std::shared_ptr<CancellableHostMemory> memory = std::make_shared<CancellableHostMemory>();
};

TEST_F(PinnedModuleStagerCancellationTest, ALoadThatIsReportedIsFinished) {
  const auto stager = stage(numbered_tensors(2, 64));
  run_in_cancelled_thread([&] { stager->load(); });
  EXPECT_TRUE(stager->is_loaded());
  EXPECT_EQ(cancellable->events, 1);
}

TEST_F(PinnedModuleStagerCancellationTest, AnOffloadThatIsReportedIsFinished) {
  const auto tensors = numbered_tensors(2, 64);
  const auto stager = stage(tensors);
  stager->load();
  run_in_cancelled_thread([&] { stager->offload(); });
  EXPECT_FALSE(stager->is_loaded());
  EXPECT_EQ(cancellable->events, 2);
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerCancellationTest, ADestructionThatReportsAKeptViewIsFinished) {
  const auto tensors = numbered_tensors(2, 64);
  auto stager = stage(tensors);
  stager->load();
  const at::Tensor kept = tensors[1].tensor.view({8, 8});
  run_in_cancelled_thread([&] { stager.reset(); });
  EXPECT_EQ(cancellable->events, 2);
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerCancellationTest, TheLastOwnerOfMastersGivesThemBack) {
  auto tensors = numbered_tensors(2, 64);
  stage(tensors);
  memory->cancels_unpin = true;
  run_in_cancelled_thread([&] { tensors.clear(); });
  EXPECT_EQ(memory->live, 0);
  EXPECT_EQ(context->abandoned_host_bytes(), 0);
}

TEST_F(PinnedModuleStagerCancellationTest,
       AThreadThatEndsWhilePinningLeavesTensorsForAnotherStager) {
  const auto tensors = numbered_tensors(3, 128);
  memory->cancels_pin = true;
  run_in_cancelled_thread([&] { stage(tensors, {.chunk_bytes_max = 512}); });
  expect_numbered(tensors);
  memory->cancels_pin = false;
  const auto stager = stage(tensors);
  EXPECT_EQ(stager->pinned_bytes(), 3 * 512);
}

}  // namespace
}  // namespace offstage
