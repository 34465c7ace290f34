// SPDX-License-Identifier: Apache-2.0
// What a stager does when all goes well: places, values, counts.
#include "staging_fixture.hpp"

#include <offstage/base/error.hpp>

#include <c10/core/StreamGuard.h>

namespace offstage {
namespace {

using ::testing::HasSubstr;

class PinnedModuleStagerTest : public StagingTest {};

// cases C40 (offloaded tensors are whole) and C55 (nothing stays without a successor)
TEST_F(PinnedModuleStagerTest, TensorsAreOnTheHostThenOnTheDeviceThenOnTheHost) {
  torch::nn::Linear linear(4, 3);
  const at::Tensor weight = linear->weight.detach().clone();
  const auto stager = stage(named_tensors(linear));
  EXPECT_TRUE(linear->weight.device().is_cpu());
  EXPECT_TRUE(linear->weight.is_pinned());
  const void* master = linear->weight.data_ptr();

  stager->load();
  EXPECT_EQ(linear->weight.device(), device());
  EXPECT_EQ(linear->bias.device(), device());
  EXPECT_TRUE(at::equal(linear->weight.cpu(), weight));

  stager->offload();
  EXPECT_EQ(linear->weight.data_ptr(), master);
  EXPECT_TRUE(at::equal(linear->weight, weight));
  EXPECT_EQ(simulator.memory().allocated, 0);
}

TEST_F(PinnedModuleStagerTest, AForwardOnTheDeviceGivesTheBytesOfTheHost) {
  torch::nn::Linear linear(32, 16);
  const at::Tensor input = at::rand({8, 32});
  const at::Tensor expected = linear->forward(input);
  const auto stager = stage(named_tensors(linear));
  stager->load();
  EXPECT_TRUE(at::equal(linear->forward(input.to(device())).cpu(), expected));
  stager->offload();
  EXPECT_TRUE(at::equal(linear->forward(input), expected));
}

// The figures that a load is measured by.
TEST_F(PinnedModuleStagerTest, AThousandTensorsAreOneAllocationOneCopyOneRecordOneWaitNoHostWait) {
  const auto tensors = numbered_tensors(1000, 300);
  const auto stager = stage(tensors);
  stager->set_cache(retaining_cache());
  auto before = counters();
  stager->load();
  auto moved = counters() - before;
  EXPECT_EQ(moved.allocations, 1);
  EXPECT_EQ(moved.copies_h2d, 1);
  EXPECT_EQ(moved.bytes_h2d, 1000 * 1536);
  EXPECT_EQ(moved.events_recorded, 1);
  EXPECT_EQ(moved.stream_waits, 1);
  EXPECT_EQ(moved.host_waits, 0);
  EXPECT_EQ(moved.kernel_waits, 0);
  expect_numbered(tensors);

  before = counters();
  stager->offload();
  moved = counters() - before;
  EXPECT_EQ(moved.copies_h2d + moved.copies_d2h + moved.copies_d2d, 0);
  EXPECT_EQ(moved.events_recorded, 1);
  EXPECT_EQ(moved.stream_waits, 1);
  EXPECT_EQ(moved.host_waits, 0);
  EXPECT_EQ(moved.cache_releases, 0);

  before = counters();
  stager->load();
  moved = counters() - before;
  EXPECT_EQ(moved.segments_allocated, 0) << "the second load takes the retained memory";
  EXPECT_EQ(moved.allocations, 1);
  expect_numbered(tensors);

  const StagerCounters own = stager->counters();
  EXPECT_EQ(own.loads, 2);
  EXPECT_EQ(own.offloads, 1);
  EXPECT_EQ(own.allocations, 2);
  EXPECT_EQ(own.copies, 2);
  EXPECT_EQ(own.event_records, 3);
  EXPECT_EQ(own.stream_waits, 3);
  EXPECT_EQ(own.host_waits, 0);
}

TEST_F(PinnedModuleStagerTest, AComponentBeyondTheChunkBoundMovesInAsManyPiecesAsChunks) {
  const auto tensors = numbered_tensors(10, 1024);  // 4 KiB each.
  const auto stager = stage(tensors, {.chunk_bytes_max = 12 * kKiB});
  EXPECT_EQ(stager->chunk_count(), 4U);
  const auto before = counters();
  stager->load();
  const auto moved = counters() - before;
  EXPECT_EQ(moved.allocations, 4);
  EXPECT_EQ(moved.copies_h2d, 4);
  EXPECT_EQ(moved.events_recorded, 1);
  EXPECT_EQ(moved.stream_waits, 1);
  EXPECT_EQ(moved.host_waits, 0);
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerTest, PinnedBytesAreTheStoragesRoundedToTheAlignment) {
  const auto before = simulator.pinned_bytes();
  const auto stager = stage(numbered_tensors(3, 129));  // 516 bytes each.
  EXPECT_EQ(stager->bytes(), 3 * 1024);
  EXPECT_EQ(stager->pinned_bytes(), 3 * 1024);
  EXPECT_EQ(simulator.pinned_bytes() - before, 3 * 1024);
}

// Chunks, not a slab: in 1.15 E of memory a component of E returns although a tensor of E/88 was
// carved out of its cached memory and stays. As one slab it finds no hole, and only the retry,
// which goes storage by storage, still places it.
TEST_F(PinnedModuleStagerTest, AComponentReturnsAlthoughASmallTensorWasCarvedOutOfItsMemory) {
  constexpr std::int64_t kComponent = 176 * kMiB;
  const auto retries = [this](std::int64_t chunk_bytes_max) {
    simulator.reset();
    simulator.set_capacity(0, kComponent * 115 / 100);
    const auto stager = stage(numbered_tensors(88, kMiB / 2), {.chunk_bytes_max = chunk_bytes_max});
    stager->set_cache(retaining_cache());
    stager->load();
    stager->offload();
    at::Tensor carved;
    {
      const c10::StreamGuard guard(context->copy_stream());  // The stream that owns the cache.
      carved = at::empty({kComponent / 88}, at::TensorOptions().dtype(at::kByte).device(device()));
    }
    EXPECT_GT(simulator.memory().inactive_split, 0) << "the tensor was to come from the cache";
    stager->load();
    EXPECT_TRUE(stager->is_loaded());
    return stager->counters().out_of_memory_retries;
  };
  EXPECT_EQ(retries(kComponent / 11), 0);
  EXPECT_EQ(retries(kComponent), 1);
}

TEST_F(PinnedModuleStagerTest, LoadAndOffloadAreIdempotent) {  // case C33
  const auto stager = stage(numbered_tensors(2, 8));
  stager->offload();
  EXPECT_EQ(stager->counters().offloads, 0);
  stager->load();
  stager->load();
  EXPECT_EQ(stager->counters().loads, 1);
  EXPECT_EQ(stager->counters().allocations, 1);
  stager->offload();
  stager->offload();
  EXPECT_EQ(stager->counters().offloads, 1);
  EXPECT_FALSE(stager->is_loaded());
}

TEST_F(PinnedModuleStagerTest, WithoutACacheEveryOffloadReleasesAndWithOneInsideItsBoundsNone) {
  const auto stager = stage(numbered_tensors(4, 64));  // case C30
  auto before = counters();
  for (int round = 0; round < 10; ++round) {
    stager->load();
    stager->offload();
  }
  EXPECT_EQ((counters() - before).cache_releases, 10);
  stager->set_cache(std::make_shared<BoundedAllocatorCache>(device(), telemetry));
  stager->load();
  stager->offload();
  before = counters();
  for (int round = 0; round < 10; ++round) {
    stager->load();
    stager->offload();
  }
  EXPECT_EQ((counters() - before).cache_releases, 0);
  EXPECT_EQ((counters() - before).segments_allocated, 0);
  stager->set_cache(nullptr);
  stager->load();
  stager->offload();
  EXPECT_EQ((counters() - before).cache_releases, 1);
}

TEST_F(PinnedModuleStagerTest, ACacheOfAnotherDeviceIsRefused) {
  const auto stager = stage(numbered_tensors(1, 8));
  EXPECT_THROW(
      stager->set_cache(std::make_shared<BoundedAllocatorCache>(simulator.device(1), telemetry)),
      InvalidArgument);
}

TEST_F(PinnedModuleStagerTest, LoadAndOffloadAreEvents) {
  const auto stager = stage(numbered_tensors(2, 8), {.name = "vae"});
  stager->load();
  stager->offload();
  const auto events = sink->events();
  ASSERT_EQ(count_events(EventKind::kComponentLoaded), 1U);
  ASSERT_EQ(count_events(EventKind::kComponentOffloaded), 1U);
  for (const auto& event : events) {
    EXPECT_EQ(event.component, "vae");
    EXPECT_EQ(event.bytes, 1024);
    EXPECT_GT(event.duration.count(), 0);
  }
}

// case C45: index 1 while index 0 is current.
TEST_F(PinnedModuleStagerTest, EverythingHappensOnTheDeviceOfTheContext) {
  const auto tensors = numbered_tensors(2, 64);
  const auto other = DeviceContext::create(
      simulator.device(1), {.host_memory = simulator.host_memory(), .telemetry = telemetry});
  PinnedModuleStager stager(tensors, other);
  const auto before_0 = simulator.counters(0);
  const auto before_1 = simulator.counters(1);
  stager.load();
  EXPECT_EQ(tensors[0].tensor.device(), simulator.device(1));
  EXPECT_EQ((simulator.counters(1) - before_1).allocations, 1);
  EXPECT_EQ(simulator.counters(0), before_0);
  EXPECT_EQ(c10::impl::VirtualGuardImpl(device().type()).getDevice(), simulator.device(0));
  stager.offload();
}

TEST_F(PinnedModuleStagerTest, DestructionWhileLoadedBindsToTheMastersAndDropsTheDeviceMemory) {
  const auto tensors = numbered_tensors(3, 64);
  {
    const auto stager = stage(tensors);
    stager->load();
  }
  EXPECT_TRUE(tensors[0].tensor.device().is_cpu());
  expect_numbered(tensors);
  EXPECT_EQ(simulator.memory().allocated, 0);
}

// case C22: the masters outlive the stager while a copy still reads them.
TEST_F(PinnedModuleStagerTest, DestructionRightAfterALoadDoesNotFreeMastersUnderTheCopy) {
  const auto tensors = numbered_tensors(3, 64);
  const auto before = counters();
  {
    const auto copies_held = simulator.hold(context->copy_stream());
    const auto stager = stage(tensors);
    stager->load();
  }
  EXPECT_EQ((counters() - before).host_waits, 0) << "destruction does not wait";
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerTest, TheLastOwnerOfMastersWaitsForCopiesAndUnpins) {
  const auto pinned = simulator.pinned_bytes();
  const auto before = counters();
  {
    const auto stager = stage(numbered_tensors(3, 64));
    stager->load();
  }
  EXPECT_EQ((counters() - before).host_waits, 1);
  EXPECT_EQ(simulator.pinned_bytes(), pinned);
}

TEST_F(PinnedModuleStagerTest, AModuleCanBeStagedAgainOnceItsStagerIsGone) {
  const auto tensors = numbered_tensors(2, 8);
  stage(tensors).reset();
  const auto again = stage(tensors);
  again->load();
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerTest, AModuleThatLivesOnTheDeviceIsTakenOver) {
  const auto host = numbered_tensors(3, 64);
  std::vector<NamedTensor> tensors;
  for (const auto& named : host) tensors.push_back({named.path, named.tensor.to(device())});
  const auto before = counters();
  const auto stager = stage(tensors);
  EXPECT_EQ((counters() - before).copies_d2h, 3) << "by the device, and not by the host";
  EXPECT_TRUE(tensors[2].tensor.device().is_cpu());
  EXPECT_EQ(simulator.memory().allocated, 0);
  expect_numbered(tensors);
  stager->load();
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerTest, InferenceModeAroundLoadsChangesNoTensorsKind) {
  torch::nn::Linear linear(4, 4);
  const auto stager = stage(named_tensors(linear));
  {
    const c10::InferenceMode mode;
    stager->load();
    EXPECT_FALSE(linear->weight.is_inference());
    stager->offload();
  }
  stager->load();
  EXPECT_FALSE(linear->weight.is_inference());
  EXPECT_TRUE(linear->weight.requires_grad());
  EXPECT_TRUE(linear->weight.is_leaf());
}

TEST_F(PinnedModuleStagerTest, RecordingGradientsIsReportedOnce) {
  torch::nn::Linear linear(4, 4);
  const auto stager = stage(named_tensors(linear));
  {
    const c10::InferenceMode mode;
    stager->load();
    stager->offload();
  }
  EXPECT_EQ(count_events(EventKind::kGradEnabled), 0U);
  stager->load();
  stager->offload();
  stager->load();
  ASSERT_EQ(count_events(EventKind::kGradEnabled), 1U);
  EXPECT_EQ(sink->events(EventKind::kGradEnabled)[0].message, "weight");
}

// The device CPU has neither streams nor events: everything happens at once.
TEST_F(PinnedModuleStagerTest, AContextOnTheCpuCopiesWithoutStreams) {
  const auto tensors = numbered_tensors(3, 64);
  PinnedModuleStager stager(tensors, DeviceContext::create(c10::Device(c10::kCPU)));
  const void* master = tensors[1].tensor.data_ptr();
  stager.load();
  EXPECT_NE(tensors[1].tensor.data_ptr(), master);
  expect_numbered(tensors);
  stager.offload();
  EXPECT_EQ(tensors[1].tensor.data_ptr(), master);
  EXPECT_EQ(stager.counters().event_records, 0);
  EXPECT_EQ(stager.pinned_bytes(), 0);
}

TEST_F(PinnedModuleStagerTest, OptionsOutOfRangeAreErrorsThatNameThem) {
  const auto message = [this](StagerOptions options) -> std::string {
    try {
      stage(numbered_tensors(1, 8), std::move(options));
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message({.alignment = 8}), HasSubstr("alignment must be a power of two"));
  EXPECT_THAT(message({.alignment = 8192}), HasSubstr("from 16 to 4096, got 8192"));
  EXPECT_THAT(message({.alignment = 768}), HasSubstr("got 768"));
  EXPECT_THAT(message({.chunk_bytes_max = 0}), HasSubstr("chunk_bytes_max must be more than 0"));
  EXPECT_THROW(PinnedModuleStager({}, nullptr), InvalidArgument);
  EXPECT_EQ(message({.alignment = 16, .chunk_bytes_max = 1}), "accepted");
}

TEST_F(PinnedModuleStagerTest, AComponentWithoutTensorsLoadsAndOffloads) {
  const auto stager = stage({});
  stager->load();
  EXPECT_TRUE(stager->is_loaded());
  stager->offload();
  EXPECT_EQ(stager->counters().copies, 0);
}

}  // namespace
}  // namespace offstage
