// SPDX-License-Identifier: Apache-2.0
// How much of the masters is pinned, in what pieces, and what that takes.
#include "../device/fake_file_tree.hpp"
#include "staging_fixture.hpp"

#include <offstage/device/registered_host_memory.hpp>

#include <c10/core/DeviceGuard.h>

#include <thread>

namespace offstage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr std::int64_t kPage = 4096;

/// Memory that the simulator pins in slices; notes every call.
class NotingHostMemory final : public HostMemory {
 public:
  NotingHostMemory(std::shared_ptr<HostMemory> memory, std::int64_t slice_bytes_max)
      : memory_(std::move(memory)), slice_bytes_max_(slice_bytes_max) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "noting"; }
  [[nodiscard]] bool pins() const noexcept override { return true; }
  [[nodiscard]] std::int64_t slice_bytes_max() const noexcept override { return slice_bytes_max_; }
  [[nodiscard]] bool bound_by_memlock() const noexcept override { return is_bound_by_memlock; }
  [[nodiscard]] void* allocate(std::int64_t bytes) override {
    allocated.push_back(bytes);
    void* const data = memory_->allocate(bytes);
    begin = static_cast<std::byte*>(data);
    note_device();
    return data;
  }
  void free(void* data, std::int64_t bytes) noexcept override { memory_->free(data, bytes); }
  void pin(void* data, std::int64_t bytes) override {
    pinned.emplace_back(static_cast<std::byte*>(data) - begin, bytes);
    note_device();
    memory_->pin(data, bytes);
  }
  void unpin(void* data, std::int64_t bytes) override {
    note_device();
    memory_->unpin(data, bytes);
  }

  bool is_bound_by_memlock = false;
  std::vector<std::int64_t> allocated;
  std::vector<std::pair<std::int64_t, std::int64_t>> pinned;  ///< Offset and bytes.
  std::vector<c10::DeviceIndex> devices;                      ///< Current at each call.
  std::byte* begin = nullptr;

 private:
  void note_device() {
    const auto type = testing::Simulator::install().device().type();
    devices.push_back(c10::impl::VirtualGuardImpl(type).getDevice().index());
  }

  const std::shared_ptr<HostMemory> memory_;
  const std::int64_t slice_bytes_max_;
};

class PinnedModuleStagerBudgetTest : public StagingTest {
 protected:
  PinnedModuleStagerBudgetTest() { use(simulator.host_memory()); }

  void use(std::shared_ptr<HostMemory> memory) {
    context = DeviceContext::create(device(), {.host_memory = std::move(memory),
                                               .telemetry = telemetry,
                                               .sink = sink,
                                               .pinned_ledger = ledger});
  }
  std::shared_ptr<NotingHostMemory> use_noting(std::int64_t slice_bytes_max) {
    auto memory = std::make_shared<NotingHostMemory>(simulator.host_memory(), slice_bytes_max);
    use(memory);
    return memory;
  }

  /// Float tensors of that many pages, tensor i full of i; each is a chunk by `in_pages()`.
  static std::vector<NamedTensor> tensors_of(const std::vector<std::int64_t>& pages) {
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      tensors.push_back(
          {"t" + std::to_string(i), at::full({pages[i] * 1024}, static_cast<float>(i))});
    }
    return tensors;
  }
  static StagerOptions in_pages(PinnedBudget budget) {
    return {.pinned_budget = std::move(budget), .chunk_bytes_max = kPage};
  }

  std::shared_ptr<PinnedLedger> ledger = std::make_shared<PinnedLedger>();
};

TEST_F(PinnedModuleStagerBudgetTest, ABudgetThatIsTooShortPinsTheLargestChunksAndWarnsOnce) {
  const auto tensors = tensors_of({1, 3, 1, 2});
  const auto stager = stage(tensors, in_pages(PinnedBudget::of_bytes(5 * kPage)));
  EXPECT_EQ(stager->pinned_bytes(), 5 * kPage);
  EXPECT_EQ(stager->host_bytes(), 7 * kPage);
  EXPECT_TRUE(simulator.is_pinned(tensors[1].tensor.data_ptr()));
  EXPECT_TRUE(simulator.is_pinned(tensors[3].tensor.data_ptr()));
  EXPECT_FALSE(simulator.is_pinned(tensors[0].tensor.data_ptr()));
  ASSERT_EQ(count_events(EventKind::kPinningFailed), 1U);
  const auto warning = sink->events()[0];
  EXPECT_EQ(warning.bytes, 2 * kPage);
  EXPECT_EQ(warning.reason, "budget");
  EXPECT_EQ(warning.message,
            "pinning takes 28672 bytes, allowed are 20480 (a budget of 20480 bytes, 0 of them in "
            "use)");
  stager->load();
  expect_numbered(tensors);
  stager->offload();
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerBudgetTest, WhatDoesNotFitIsPassedOverForSmallerChunks) {
  const auto stager =
      stage(tensors_of({1, 3, 2}), in_pages(PinnedBudget::of_bytes(4 * kPage + kPage / 2)));
  EXPECT_EQ(stager->pinned_bytes(), 4 * kPage);
  EXPECT_EQ(ledger->pinned_bytes(), 4 * kPage);
  EXPECT_EQ(ledger->promised_bytes(), 0);
}

TEST_F(PinnedModuleStagerBudgetTest, ABudgetOfExactlyWhatIsNeededPinsAllWithoutAWord) {
  const auto stager = stage(tensors_of({1, 3, 2}), in_pages(PinnedBudget::of_bytes(6 * kPage)));
  EXPECT_EQ(stager->pinned_bytes(), 6 * kPage);
  EXPECT_EQ(count_events(EventKind::kPinningFailed), 0U);
}

TEST_F(PinnedModuleStagerBudgetTest, ABudgetOfNothingPinsNothing) {
  const auto before = simulator.pinned_bytes();
  const auto tensors = tensors_of({1, 2});
  const auto stager = stage(tensors, in_pages(PinnedBudget::of_bytes(0)));
  EXPECT_EQ(simulator.pinned_bytes(), before);
  stager->load();
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerBudgetTest, UnderStrictPinningAShortBudgetIsAnErrorBeforeAnythingChanged) {
  const auto memory = use_noting(kGiB);
  const auto tensors = tensors_of({1, 2});
  const void* const before = tensors[0].tensor.data_ptr();
  StagerOptions options = in_pages(PinnedBudget::of_bytes(2 * kPage));
  options.name = "vae";
  options.strict_pinning = true;
  try {
    stage(tensors, options);
    FAIL() << "expected a HostMemoryError";
  } catch (const HostMemoryError& error) {
    EXPECT_STREQ(error.what(),
                 "component 'vae': pinning takes 12288 bytes, allowed are 8192 (a budget of 8192 "
                 "bytes, 0 of them in use), and strict pinning was asked for");
  }
  EXPECT_EQ(tensors[0].tensor.data_ptr(), before);
  EXPECT_TRUE(memory->allocated.empty());
  EXPECT_EQ(ledger->promised_bytes(), 0);
  EXPECT_NO_THROW(stage(tensors));
}

TEST_F(PinnedModuleStagerBudgetTest, StrictPinningNeedsMemoryThatPins) {
  use(std::make_shared<PageableHostMemory>());
  const auto tensors = tensors_of({1});
  try {
    stage(tensors, {.name = "vae", .strict_pinning = true});
    FAIL() << "expected a HostMemoryError";
  } catch (const HostMemoryError& error) {
    EXPECT_STREQ(error.what(),
                 "component 'vae': host memory 'pageable' does not pin, and strict pinning was "
                 "asked for");
  }
  EXPECT_NO_THROW(stage(tensors, {.pin_memory = false, .strict_pinning = true}))
      << "not asked to pin at all";
}

TEST_F(PinnedModuleStagerBudgetTest, WhatOneStagerPinsCountsForTheNextUntilItsMastersAreGone) {
  const PinnedBudget budget = PinnedBudget::of_bytes(4 * kPage);
  auto tensors = tensors_of({1, 2});
  auto first = stage(tensors, in_pages(budget));
  const auto second = stage(tensors_of({1, 2}), in_pages(budget));
  EXPECT_EQ(first->pinned_bytes(), 3 * kPage);
  EXPECT_EQ(second->pinned_bytes(), kPage);
  EXPECT_THAT(sink->events()[0].message, HasSubstr("12288 of them in use"));
  first.reset();
  EXPECT_EQ(ledger->pinned_bytes(), 4 * kPage) << "tensors are still bound to the masters";
  tensors.clear();
  EXPECT_EQ(ledger->pinned_bytes(), kPage);
  EXPECT_EQ(stage(tensors_of({1, 2}), in_pages(budget))->pinned_bytes(), 3 * kPage);
}

TEST_F(PinnedModuleStagerBudgetTest, StagersOfAllDevicesShareTheLedger) {
  const auto other = DeviceContext::create(
      simulator.device(1), {.host_memory = simulator.host_memory(), .pinned_ledger = ledger});
  const PinnedModuleStager first(tensors_of({2}), other);
  EXPECT_EQ(ledger->pinned_bytes(), 2 * kPage) << "without a budget too";
  EXPECT_EQ(stage(tensors_of({2}), in_pages(PinnedBudget::of_bytes(3 * kPage)))->pinned_bytes(), 0);
}

TEST_F(PinnedModuleStagerBudgetTest, StagersThatAreBuiltAtOnceNeverPinMoreThanTheBudget) {
  const PinnedBudget budget = PinnedBudget::of_bytes(10 * kPage);
  std::vector<std::shared_ptr<PinnedModuleStager>> stagers(8);
  std::vector<std::thread> threads;
  for (auto& stager : stagers) {
    threads.emplace_back([&] { stager = stage(tensors_of({1, 1, 1}), in_pages(budget)); });
  }
  for (std::thread& thread : threads) thread.join();
  std::int64_t sum = 0;
  for (const auto& stager : stagers) sum += stager->pinned_bytes();
  EXPECT_EQ(sum, 10 * kPage);
  EXPECT_EQ(ledger->pinned_bytes(), 10 * kPage);
}

TEST_F(PinnedModuleStagerBudgetTest, WhatIsRefusedWhilePinningGoesBackToTheLedger) {
  use(std::make_shared<RefusingHostMemory>(simulator.host_memory(), 1));
  const auto stager = stage(tensors_of({1, 1, 1}), in_pages(PinnedBudget::of_bytes(2 * kPage)));
  EXPECT_EQ(stager->pinned_bytes(), kPage);
  EXPECT_EQ(ledger->pinned_bytes(), kPage);
  EXPECT_EQ(ledger->promised_bytes(), 0);
  ASSERT_EQ(count_events(EventKind::kPinningFailed), 1U) << "one warning for both causes";
  EXPECT_EQ(sink->events()[0].bytes, 2 * kPage);
}

// case C20: the container's figures, and not the machine's.
TEST_F(PinnedModuleStagerBudgetTest, AnAutomaticBudgetIsWhatTheContainerLeaves) {
  const FakeFileTree files;
  files.set_group("/pod");
  files.set_limit("/pod", std::to_string(10 * kPage), 9 * kPage, 2 * kPage, 0);
  const auto held = tensors_of({1, 2, 1});
  std::vector<at::Tensor> aliases;  // The old memory is not given back.
  for (const auto& named : held) aliases.push_back(named.tensor.detach());
  const auto stager = stage(
      held, in_pages(PinnedBudget::automatic({.reserve_bytes = kPage, .root = files.root()})));
  EXPECT_EQ(stager->pinned_bytes(), 2 * kPage);
  EXPECT_THAT(sink->events(EventKind::kPinningFailed)[0].message,
              HasSubstr("allowed are 8192 (memory.max of /sys/fs/cgroup/pod less a reserve of 4096 "
                        "bytes)"));
}

TEST_F(PinnedModuleStagerBudgetTest, MemoryThatTheTensorsGiveBackIsAvailableToTheirMasters) {
  const FakeFileTree files;
  files.set_available(kPage);
  const auto stager =
      stage(tensors_of({1, 2, 1}),
            in_pages(PinnedBudget::automatic({.reserve_bytes = kPage, .root = files.root()})));
  EXPECT_EQ(stager->pinned_bytes(), 4 * kPage);
}

TEST_F(PinnedModuleStagerBudgetTest, ABudgetThatCannotBeReadIsAnErrorBeforeAnythingChanged) {
  const auto tensors = tensors_of({1});
  const void* const before = tensors[0].tensor.data_ptr();
  EXPECT_THROW(stage(tensors, in_pages(PinnedBudget::automatic({.root = "/nowhere"}))),
               HostMemoryError);
  EXPECT_EQ(tensors[0].tensor.data_ptr(), before);
}

TEST_F(PinnedModuleStagerBudgetTest, TheLimitOfLockedMemoryCountsForProvidersThatAreBoundByIt) {
  const FakeFileTree files;
  files.set_lock_limit(std::to_string(2 * kPage), 0);
  const auto options =
      in_pages(PinnedBudget::automatic({.reserve_bytes = 0, .root = files.root()}));
  const auto memory = use_noting(kGiB);
  EXPECT_EQ(stage(tensors_of({1, 2}), options)->pinned_bytes(), 3 * kPage);
  memory->is_bound_by_memlock = true;
  EXPECT_EQ(stage(tensors_of({1, 2}), options)->pinned_bytes(), 2 * kPage);
}

// Chunks of 512 bytes side by side, and nothing between them.
TEST_F(PinnedModuleStagerBudgetTest, AllMastersAreOneReservationOfExactSize) {
  const auto memory = use_noting(kGiB);
  const auto tensors = numbered_tensors(20, 100);
  const auto stager = stage(tensors, {.chunk_bytes_max = 512});
  EXPECT_EQ(stager->chunk_count(), 20U);
  EXPECT_THAT(memory->allocated, ElementsAre(20 * 512));
  EXPECT_THAT(memory->pinned, ElementsAre(Pair(0, 20 * 512)));
  EXPECT_EQ(stager->host_bytes(), 3 * kPage) << "rounded up once, at the end";
  stager->load();
  expect_numbered(tensors);
}

// case C18: at most the configured bytes a call. A copy that crossed two of them would be refused.
TEST_F(PinnedModuleStagerBudgetTest, RegistrationsAreSlicesOfWholeChunksThatShareNoPage) {
  const auto memory = use_noting(1536);
  const auto tensors = numbered_tensors(7, 128);
  const auto stager = stage(tensors, {.chunk_bytes_max = 512});
  EXPECT_THAT(memory->allocated, ElementsAre(2 * kPage + 512));
  EXPECT_THAT(memory->pinned, ElementsAre(Pair(0, 1536), Pair(kPage, 1536), Pair(2 * kPage, 512)));
  stager->load();
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerBudgetTest, AChunkLargerThanASliceIsASliceOfItsOwn) {
  const auto memory = use_noting(2 * kPage);
  const auto tensors = tensors_of({1, 3, 1, 1});
  const auto stager = stage(tensors, in_pages({}));
  EXPECT_THAT(memory->pinned,
              ElementsAre(Pair(0, kPage), Pair(kPage, 3 * kPage), Pair(4 * kPage, 2 * kPage)));
  stager->load();
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerBudgetTest, MemoryIsTakenPinnedAndLetGoOfOnTheDeviceOfTheComponent) {
  const auto memory = std::make_shared<NotingHostMemory>(simulator.host_memory(), kGiB);
  const auto other = DeviceContext::create(simulator.device(1), {.host_memory = memory});
  static_cast<void>(PinnedModuleStager(numbered_tensors(1, 8), other));
  EXPECT_THAT(memory->devices, ElementsAre(1, 1, 1)) << "a context on device 0 costs memory there";
}

// Layers of the usual kinds, with a tied weight: 1 % and no more is lost to alignment and pages.
TEST_F(PinnedModuleStagerBudgetTest, PinnedAreTheBytesOfTheWeightsAndAtMostOnePercentMore) {
  struct Block : torch::nn::Module {
    Block() {
      for (const char* name : {"query", "key", "value", "out"}) {
        register_module(name, torch::nn::Linear(192, 192));
      }
      register_module("up", torch::nn::Linear(192, 768));
      register_module("down", torch::nn::Linear(768, 192));
      register_buffer("scale", at::ones({192}));
    }
  };
  struct Model : torch::nn::Module {
    Model() {
      for (int i = 0; i < 4; ++i) {
        register_module("block" + std::to_string(i), std::make_shared<Block>());
      }
      embedding = register_parameter("embedding", at::rand({500, 192}), false);
      register_parameter("output", embedding.view({500, 192}), false);
    }
    at::Tensor embedding;
  };
  const auto tensors = named_tensors(Model());
  std::int64_t unique = 0;
  for (const auto& named : tensors) unique += static_cast<std::int64_t>(named.tensor.nbytes());
  unique -= 500 * 192 * 4;  // The tied one is there twice.
  const auto before = simulator.pinned_bytes();
  const auto stager = stage(tensors, {.chunk_bytes_max = kMiB});
  EXPECT_EQ(stager->pinned_bytes(), simulator.pinned_bytes() - before);
  EXPECT_GE(stager->pinned_bytes(), unique);
  EXPECT_LE(static_cast<double>(stager->pinned_bytes()), 1.01 * static_cast<double>(unique));
  EXPECT_LE(static_cast<double>(stager->host_bytes()), 1.01 * static_cast<double>(unique));
}

// case C17: what is locked for one component is let go of before the next.
TEST_F(PinnedModuleStagerBudgetTest, AThousandComponentsInTurnNeverPinMoreThanOne) {
  const auto before = simulator.pinned_bytes();
  for (int i = 0; i < 1000; ++i) {
    const auto stager = stage(numbered_tensors(2, 1024));
    ASSERT_EQ(simulator.pinned_bytes() - before, 2 * kPage);
  }
  EXPECT_EQ(simulator.pinned_bytes(), before);
  EXPECT_EQ(ledger->pinned_bytes(), 0);
}

// case C19: locked bytes drop by exactly those of the component's masters.
TEST_F(PinnedModuleStagerBudgetTest, LettingGoOfAComponentUnpinsExactlyItsMasters) {
  const auto other = stage(numbered_tensors(1, 1024));
  auto tensors = numbered_tensors(3, 1024);
  auto stager = stage(tensors);
  stager->load();
  stager->offload();
  const auto before = simulator.pinned_bytes();
  stager.reset();
  tensors.clear();
  EXPECT_EQ(before - simulator.pinned_bytes(), 3 * kPage);
  EXPECT_EQ(ledger->pinned_bytes(), kPage);
}

}  // namespace
}  // namespace offstage
