// SPDX-License-Identifier: Apache-2.0
// How a stager takes tensors over: what the masters hold, when they are pinned, what is given back.
#include "staging_fixture.hpp"

#include <offstage/base/error.hpp>

#include <cstring>
#include <functional>

namespace offstage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Memory that others have used, with a hook at each pinning; and bad memory on request.
class UsedHostMemory final : public HostMemory {
 public:
  explicit UsedHostMemory(std::shared_ptr<HostMemory> memory) : memory_(std::move(memory)) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "used"; }
  [[nodiscard]] bool pins() const noexcept override { return true; }
  [[nodiscard]] void* allocate(std::int64_t bytes) override {
    if (allocations_allowed-- <= 0) throw HostMemoryError("no more memory");
    ++live;
    auto* data = static_cast<std::byte*>(memory_->allocate(bytes + shift));
    std::memset(data, 0xff, static_cast<std::size_t>(bytes + shift));
    return data + shift;
  }
  void free(void* data, std::int64_t bytes) noexcept override {
    --live;
    memory_->free(static_cast<std::byte*>(data) - shift, bytes + shift);
  }
  void pin(void* data, std::int64_t bytes) override {
    if (at_pin) at_pin();
    memory_->pin(data, bytes);
  }
  void unpin(void* data, std::int64_t bytes) override { memory_->unpin(data, bytes); }

  int live = 0;
  int allocations_allowed = 100;
  std::int64_t shift = 0;  ///< Bytes by which what is returned misses its alignment.
  std::function<void()> at_pin;

 private:
  const std::shared_ptr<HostMemory> memory_;
};

class PinnedModuleStagerMastersTest : public StagingTest {
 protected:
  PinnedModuleStagerMastersTest() {
    context = DeviceContext::create(device(),
                                    {.host_memory = memory, .telemetry = telemetry, .sink = sink});
  }

  /// What a constructor that must fail says.
  std::string failure(const std::vector<NamedTensor>& tensors, StagerOptions options) {
    try {
      stage(tensors, std::move(options));
    } catch (const HostMemoryError& error) {
      return error.what();
    }
    return "staged";
  }

  std::shared_ptr<UsedHostMemory> memory =
      std::make_shared<UsedHostMemory>(simulator.host_memory());
};

/// The bytes of a tensor's storage in front of its first element.
std::vector<unsigned char> bytes_in_front(const at::Tensor& tensor) {
  const auto* data = static_cast<const unsigned char*>(tensor.storage().data());
  return {data, data + tensor.storage_offset() * static_cast<std::int64_t>(tensor.itemsize())};
}

// A view starts where its address has the remainder it had: 1200 bytes are 176 modulo 512.
TEST_F(PinnedModuleStagerMastersTest, TheBytesInFrontOfAViewAreZeroWhateverTheMemoryHeld) {
  const at::Tensor on_host = at::arange(1000, at::kFloat).narrow(0, 300, 10);
  const at::Tensor on_device = at::arange(1000, at::kFloat).to(device()).narrow(0, 300, 10);
  const auto stager = stage({{"host", on_host}, {"device", on_device}});
  const std::vector<unsigned char> zeros(176);
  EXPECT_EQ(bytes_in_front(on_host), zeros);
  EXPECT_EQ(bytes_in_front(on_device), zeros);
}

TEST_F(PinnedModuleStagerMastersTest, AViewOfDeviceMemoryIsTakenOverWithItsValues) {
  const at::Tensor view = at::arange(1000, at::kFloat).to(device()).narrow(0, 300, 10);
  const at::Tensor empty = at::empty({0, 7}).to(device());
  const auto stager = stage({{"empty", empty}, {"view", view}});
  EXPECT_TRUE(empty.device().is_cpu());
  const at::Tensor expected = at::arange(300, 310, at::kFloat);
  EXPECT_TRUE(at::equal(view, expected));
  stager->load();
  EXPECT_TRUE(at::equal(view.cpu(), expected));
}

// So at no time is there much more than one chunk that is neither pinned nor in its old place.
TEST_F(PinnedModuleStagerMastersTest, AChunkIsPinnedWhenItsSourcesAreFreedAndTheNextAreNot) {
  auto tensors = numbered_tensors(3, 128);
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> sources;
  for (const auto& named : tensors) {
    sources.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
        named.tensor.storage().unsafeGetStorageImpl()));
  }
  std::vector<std::vector<bool>> freed_at_pin;
  memory->at_pin = [&] {
    std::vector<bool> freed;
    for (const auto& source : sources) freed.push_back(source.expired());
    freed_at_pin.push_back(freed);
  };
  const auto stager = stage(tensors, {.chunk_bytes_max = 512});
  EXPECT_EQ(freed_at_pin, (std::vector<std::vector<bool>>{
                              {true, false, false}, {true, true, false}, {true, true, true}}));
}

TEST_F(PinnedModuleStagerMastersTest, PageableMastersAreNotTakenFromTheDevicesHostMemory) {
  const auto stager = stage(numbered_tensors(2, 64), {.pin_memory = false});
  EXPECT_EQ(memory->live, 0);
  EXPECT_EQ(stager->pinned_bytes(), 0);
}

TEST_F(PinnedModuleStagerMastersTest, HostMemoryThatEndsHalfwayIsGivenBackAndNothingIsChanged) {
  const auto tensors = numbered_tensors(3, 128);
  const void* before = tensors[0].tensor.data_ptr();
  memory->allocations_allowed = 2;
  EXPECT_THAT(failure(tensors, {.strict_pinning = true, .chunk_bytes_max = 512}),
              HasSubstr("no more memory"));
  EXPECT_EQ(memory->live, 0);
  EXPECT_EQ(tensors[0].tensor.data_ptr(), before);
}

// case C16, of a provider whose memory is pinned from the start.
TEST_F(PinnedModuleStagerMastersTest, HostMemoryThatIsRefusedIsReplacedByPageableWithOneWarning) {
  context = DeviceContext::create(device(), {.telemetry = telemetry, .sink = sink});
  ASSERT_EQ(context->host_memory()->name(), "host_allocator");
  const auto pinned = simulator.pinned_bytes();
  simulator.faults().fail(testing::FaultPoint::kPin, testing::FaultWhen::nth(2),
                          testing::Fault::kAccelerator);
  const auto tensors = numbered_tensors(3, 128);
  const auto stager = stage(tensors, {.name = "vae", .chunk_bytes_max = 512});
  EXPECT_EQ(stager->pinned_bytes(), 0);
  EXPECT_EQ(simulator.pinned_bytes(), pinned) << "the first chunk was given back";
  ASSERT_EQ(count_events(EventKind::kPinningFailed), 1U);
  EXPECT_EQ(sink->events()[0].bytes, 3 * 512);
  EXPECT_THAT(sink->events()[0].message, HasSubstr("refused 512 bytes"));
  stager->load();
  expect_numbered(tensors);
  stager->offload();

  simulator.faults().fail(testing::FaultPoint::kPin, testing::FaultWhen::nth(1),
                          testing::Fault::kAccelerator);
  EXPECT_THAT(failure(numbered_tensors(1, 128), {.strict_pinning = true}),
              HasSubstr("refused 512 bytes"));
}

// P03: what others do to the memory that a tensor came from does not reach the master.
TEST_F(PinnedModuleStagerMastersTest, MemoryThatIsPinnedAlreadyIsCopiedAndNotAdopted) {
  const at::Tensor source = at::full({128}, 7.0F, at::TensorOptions().pinned_memory(true));
  const at::Tensor weight = source.detach();
  const auto stager = stage({{"w", weight}});
  source.fill_(9.0F);
  EXPECT_TRUE(at::equal(weight, at::full({128}, 7.0F)));
  stager->load();
  EXPECT_TRUE(at::equal(weight.cpu(), at::full({128}, 7.0F)));
}

TEST_F(PinnedModuleStagerMastersTest, HostMemoryThatIsNotAlignedIsRefusedAndGivenBack) {
  memory->shift = 256;
  EXPECT_THAT(failure(numbered_tensors(1, 128), {.name = "vae", .strict_pinning = true}),
              AllOf(HasSubstr("'vae'"), HasSubstr("'used'"), HasSubstr("not aligned to 512")));
  EXPECT_EQ(memory->live, 0);
}

TEST_F(PinnedModuleStagerMastersTest, OfSeveralRefusalsToPinTheFirstIsReported) {
  int refusals = 0;
  memory->at_pin = [&] { throw HostMemoryError("refusal " + std::to_string(++refusals)); };
  const auto stager = stage(numbered_tensors(3, 128), {.chunk_bytes_max = 512});
  ASSERT_EQ(count_events(EventKind::kPinningFailed), 1U);
  EXPECT_EQ(sink->events()[0].message, "refusal 1");
  EXPECT_EQ(sink->events()[0].bytes, 3 * 512);
}

// case C16: pinning fails; the masters stay pageable, the results equal.
TEST_F(PinnedModuleStagerMastersTest, PinningThatFailsFallsBackToPageableMemoryWithOneWarning) {
  const auto refusing = std::make_shared<RefusingHostMemory>(simulator.host_memory(), 2);
  context = DeviceContext::create(device(),
                                  {.host_memory = refusing, .telemetry = telemetry, .sink = sink});
  const auto tensors = numbered_tensors(4, 128);
  const auto stager = stage(tensors, {.chunk_bytes_max = 512});
  EXPECT_EQ(stager->pinned_bytes(), 2 * 512);
  ASSERT_EQ(count_events(EventKind::kPinningFailed), 1U);
  EXPECT_EQ(sink->events().front().bytes, 2 * 512);
  EXPECT_THAT(sink->events().front().message, HasSubstr("no more pinned memory"));
  stager->load();
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerMastersTest,
       StrictPinningThatFailsKeepsValuesAndDevicesAndGivesUpTheMemory) {
  const auto refusing = std::make_shared<RefusingHostMemory>(simulator.host_memory(), 2);
  context = DeviceContext::create(device(), {.host_memory = refusing, .telemetry = telemetry});
  {
    const auto on_host = numbered_tensors(4, 128);
    EXPECT_THROW(stage(on_host, {.strict_pinning = true, .chunk_bytes_max = 512}), HostMemoryError);
    EXPECT_TRUE(on_host[0].tensor.device().is_cpu());
    expect_numbered(on_host);
    EXPECT_NO_THROW(stage(on_host)) << "the tensors belong to nobody";
  }
  EXPECT_EQ(refusing->live, 0);

  std::vector<NamedTensor> on_device;
  for (const auto& named : numbered_tensors(4, 128)) {
    on_device.push_back({named.path, named.tensor.to(device())});
  }
  EXPECT_THROW(stage(on_device, {.strict_pinning = true, .chunk_bytes_max = 512}), HostMemoryError);
  EXPECT_EQ(on_device[3].tensor.device(), device());
  expect_numbered(on_device);
}

TEST_F(PinnedModuleStagerMastersTest, WithoutPinningTheMastersArePageableAndLoadsWait) {
  const auto pinned = simulator.pinned_bytes();
  const auto tensors = numbered_tensors(2, 64);
  const auto stager = stage(tensors, {.pin_memory = false});
  EXPECT_EQ(simulator.pinned_bytes(), pinned);
  const auto before = counters();
  stager->load();
  EXPECT_EQ((counters() - before).host_waits, 1);
  expect_numbered(tensors);
}

}  // namespace
}  // namespace offstage
