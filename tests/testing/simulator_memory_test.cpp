// SPDX-License-Identifier: Apache-2.0
#include "simulator_fixture.hpp"

#include <offstage/base/bytes.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>

#include <vector>

namespace offstage::testing {
namespace {

class SimulatorMemoryTest : public SimulatorTest {
 protected:
  at::Tensor bytes(std::int64_t size, int index = 0) const {
    return at::empty({size}, at::TensorOptions().dtype(at::kByte).device(simulator_.device(index)));
  }

  at::Tensor bytes_on(const c10::Stream& stream, std::int64_t size) const {
    const c10::StreamGuard guard(stream);
    return bytes(size);
  }

  SimulatorMemory memory() const { return simulator_.memory(); }
};

TEST_F(SimulatorMemoryTest, SmallRequestsShareASegmentOfTwoMebibytes) {
  const at::Tensor a = bytes(1);
  const at::Tensor b = bytes(513);
  EXPECT_EQ(memory().reserved, 2 * kMiB);
  EXPECT_EQ(memory().segments, 1);
  EXPECT_EQ(memory().allocated, 512 + 1024);
  EXPECT_EQ(memory().active, 512 + 1024);
  EXPECT_EQ(memory().inactive_split, 2 * kMiB - 512 - 1024);
  EXPECT_EQ(memory().free, kGiB - 2 * kMiB);
  EXPECT_EQ(memory().total, kGiB);
}

TEST_F(SimulatorMemoryTest, SegmentSizesFollowTheRequest) {
  const at::Tensor small = bytes(kMiB);
  EXPECT_EQ(memory().reserved, 2 * kMiB);
  const at::Tensor middle = bytes(kMiB + 1);
  EXPECT_EQ(memory().reserved, 22 * kMiB);
  const at::Tensor middle_too = bytes(10 * kMiB - 1024);
  EXPECT_EQ(memory().reserved, 22 * kMiB);
  const at::Tensor large = bytes(10 * kMiB);
  EXPECT_EQ(memory().reserved, 32 * kMiB);
  const at::Tensor larger = bytes(11 * kMiB + 1);
  EXPECT_EQ(memory().reserved, 44 * kMiB);
}

TEST_F(SimulatorMemoryTest, ALargeBlockIsNotSplitForARestOfAMebibyte) {
  const at::Tensor whole = bytes(11 * kMiB);
  EXPECT_EQ(memory().allocated, 12 * kMiB);
  EXPECT_EQ(memory().inactive_split, 0);
}

TEST_F(SimulatorMemoryTest, FreedNeighboursAreJoined) {
  at::Tensor a = bytes(4 * kMiB);
  at::Tensor b = bytes(4 * kMiB);
  at::Tensor c = bytes(4 * kMiB);
  ASSERT_EQ(memory().segments, 1);
  EXPECT_EQ(memory().inactive_split, 8 * kMiB);
  a.reset();
  c.reset();
  EXPECT_EQ(memory().inactive_split, 16 * kMiB);
  b.reset();
  EXPECT_EQ(memory().inactive_split, 0);
  EXPECT_EQ(memory().allocated, 0);
  const at::Tensor all = bytes(9 * kMiB);
  const at::Tensor rest = bytes(9 * kMiB);
  EXPECT_EQ(memory().segments, 1);
}

TEST_F(SimulatorMemoryTest, TheBestFitIsTaken) {
  at::Tensor large = bytes(40 * kMiB);
  at::Tensor fitting = bytes(20 * kMiB);
  void* const address = fitting.data_ptr();
  large.reset();
  fitting.reset();
  EXPECT_EQ(bytes(20 * kMiB).data_ptr(), address);
}

TEST_F(SimulatorMemoryTest, ABlockGoesBackToTheStreamItCameFrom) {
  const c10::Stream copies = new_stream();
  void* const address = bytes_on(copies, 16 * kMiB).data_ptr();
  EXPECT_EQ(memory().reserved, 16 * kMiB);
  const at::Tensor other = bytes(16 * kMiB);
  EXPECT_NE(other.data_ptr(), address);
  EXPECT_EQ(memory().reserved, 32 * kMiB);
  EXPECT_EQ(bytes_on(copies, 16 * kMiB).data_ptr(), address);
}

TEST_F(SimulatorMemoryTest, CountsBlocksAndSegments) {
  const SimulatorCounters before = simulator_.counters();
  at::Tensor a = bytes(16 * kMiB);
  a.reset();
  a = bytes(16 * kMiB);
  a.reset();
  const at::Tensor nothing = bytes(0);
  simulator_.empty_cache();
  SimulatorCounters expected;
  expected.allocations = 2;
  expected.frees = 2;
  expected.segments_allocated = 1;
  expected.segments_released = 1;
  expected.cache_releases = 1;
  EXPECT_EQ(simulator_.counters() - before, expected);
}

TEST_F(SimulatorMemoryTest, TheCapacityIsKeptAndTheErrorNamesTheFigures) {
  simulator_.set_capacity(0, 64 * kMiB);
  const at::Tensor a = bytes(40 * kMiB);
  const SimulatorCounters before = simulator_.counters();
  try {
    (void)bytes(26 * kMiB);
    FAIL() << "more than the device has";
  } catch (const c10::OutOfMemoryError& error) {
    const std::string what = error.what_without_backtrace();
    EXPECT_NE(
        what.find("sim:0: out of memory: 27262976 bytes requested, 25165824 free of 67108864"),
        std::string::npos)
        << what;
    EXPECT_NE(what.find("; it takes a new segment of 27262976 bytes"), std::string::npos) << what;
  }
  EXPECT_EQ((simulator_.counters() - before).out_of_memory, 1);
  const at::Tensor b = bytes(24 * kMiB);
  EXPECT_EQ(memory().free, 0);
  EXPECT_NO_THROW((void)bytes(64 * kMiB, 1)) << "the other device has its own memory";
}

TEST_F(SimulatorMemoryTest, CachedSegmentsAreReleasedBeforeTheMemoryIsOut) {
  simulator_.set_capacity(0, 64 * kMiB);
  (void)bytes(20 * kMiB);
  (void)bytes_on(new_stream(), 20 * kMiB);
  EXPECT_EQ(memory().reserved, 40 * kMiB);
  const SimulatorCounters before = simulator_.counters();
  const at::Tensor all = bytes(64 * kMiB);
  EXPECT_EQ((simulator_.counters() - before).segments_released, 2);
  EXPECT_EQ((simulator_.counters() - before).cache_releases, 0);
}

TEST_F(SimulatorMemoryTest, ASegmentInUseIsNotReleased) {
  at::Tensor a = bytes(4 * kMiB);
  at::Tensor b = bytes(4 * kMiB);
  a.reset();
  simulator_.empty_cache();
  EXPECT_EQ(memory().reserved, 20 * kMiB);
  EXPECT_EQ(memory().inactive_split, 16 * kMiB);
  b.reset();
  simulator_.empty_cache();
  EXPECT_EQ(memory().reserved, 0);
}

// A component of eleven chunks is loaded, its memory is kept, something an eighth of a chunk large
// is carved out of that and stays, and the component returns, on a device 1.15 times its size.
class SimulatorChunksTest : public SimulatorMemoryTest {
 protected:
  static constexpr std::int64_t kComponent = 176 * kMiB;

  void load(std::int64_t chunk) {
    for (std::int64_t loaded = 0; loaded < kComponent; loaded += chunk) {
      component_.push_back(bytes_on(copies_, chunk));
    }
  }

  void load_drop_and_carve(std::int64_t chunk) {
    simulator_.set_capacity(0, kComponent * 115 / 100);
    load(chunk);
    component_.clear();
    carved_ = bytes_on(copies_, kComponent / 88);
    EXPECT_EQ(memory().reserved, kComponent) << "carved out of the cache";
  }

  c10::Stream copies_ = new_stream();
  std::vector<at::Tensor> component_;
  at::Tensor carved_;
};

TEST_F(SimulatorChunksTest, ChunksComeBack) {
  load_drop_and_carve(kComponent / 11);
  load(kComponent / 11);
  EXPECT_EQ(memory().reserved, kComponent / 11 * 12);
  component_.clear();
  carved_.reset();
}

TEST_F(SimulatorChunksTest, OneSlabDoesNot) {
  load_drop_and_carve(kComponent);
  EXPECT_THROW(load(kComponent), c10::OutOfMemoryError);
  carved_.reset();
}

TEST_F(SimulatorMemoryTest, ARecordedStreamParksAFreedBlock) {
  const c10::Stream user = new_stream();
  at::Tensor a = bytes(16 * kMiB);
  void* const address = a.data_ptr();
  a.record_stream(user);
  StreamHold hold = simulator_.hold(user);
  a.reset();
  EXPECT_EQ(memory().allocated, 0);
  EXPECT_EQ(memory().active, 16 * kMiB);
  EXPECT_NE(bytes(16 * kMiB).data_ptr(), address);
  hold.release();
  user.synchronize();
  const at::Tensor b = bytes(16 * kMiB);
  const at::Tensor c = bytes(16 * kMiB);
  EXPECT_TRUE(b.data_ptr() == address || c.data_ptr() == address);
  EXPECT_EQ(memory().active, 32 * kMiB);
}

TEST_F(SimulatorMemoryTest, RecordingOnAStreamWorksThroughEveryDoor) {
  auto* const allocator =
      dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(c10::DeviceType::PrivateUse1));
  ASSERT_NE(allocator, nullptr);
  const c10::Stream user = new_stream();
  at::Tensor a = bytes(16 * kMiB);
  at::Tensor b = bytes(16 * kMiB);
  allocator->recordStream(a.storage().data_ptr(), user);
  guard_.recordDataPtrOnStream(b.storage().data_ptr(), user);
  StreamHold hold = simulator_.hold(user);
  a.reset();
  b.reset();
  EXPECT_EQ(memory().active, 32 * kMiB);
  hold.release();
  simulator_.empty_cache();
  EXPECT_EQ(memory().reserved, 0);
}

TEST_F(SimulatorMemoryTest, LibTorchSeesTheSameFigures) {
  auto* const allocator = c10::getDeviceAllocator(c10::DeviceType::PrivateUse1);
  at::Tensor a = bytes(4 * kMiB);
  const at::Tensor b = bytes(100);
  a.reset();
  const auto stats = allocator->getDeviceStats(0);
  EXPECT_TRUE(allocator->initialized());
  EXPECT_EQ(stats.reserved_bytes[0].current, 22 * kMiB);
  EXPECT_EQ(stats.allocated_bytes[0].current, 512);
  EXPECT_EQ(stats.allocated_bytes[0].peak, 4 * kMiB + 512);
  EXPECT_EQ(stats.requested_bytes[0].current, 100);
  EXPECT_EQ(stats.segment[0].current, 2);
  EXPECT_EQ(stats.num_device_alloc - stats.num_device_free, 2);
  EXPECT_EQ(allocator->getMemoryInfo(0),
            std::make_pair(std::size_t{kGiB - 22 * kMiB}, std::size_t{kGiB}));
  const SimulatorCounters before = simulator_.counters();
  allocator->emptyCache();
  EXPECT_EQ((simulator_.counters() - before).cache_releases, 1);
  EXPECT_EQ(memory().reserved, 2 * kMiB);
  EXPECT_EQ(memory().peak_allocated, 4 * kMiB + 512);
  allocator->resetPeakStats(0);
  EXPECT_EQ(memory().peak_allocated, 512);
  EXPECT_EQ(memory().peak_reserved, 2 * kMiB);
}

TEST_F(SimulatorMemoryTest, EmptyCacheEmptiesEveryDevice) {
  (void)bytes(kMiB, 0);
  (void)bytes(kMiB, 1);
  c10::getDeviceAllocator(c10::DeviceType::PrivateUse1)->emptyCache();
  EXPECT_EQ(simulator_.memory(0).reserved, 0);
  EXPECT_EQ(simulator_.memory(1).reserved, 0);
}

TEST_F(SimulatorMemoryTest, FreshMemoryIsPoisoned) {
  simulator_.set_race_action(RaceAction::kRecord);
  const at::Tensor a = bytes(700).to(at::kCPU);
  EXPECT_TRUE(a.equal(at::full({700}, kPoisonByte, at::kByte)));
}

TEST_F(SimulatorMemoryTest, FreedMemoryIsPoisonedInTheOrderOfItsStream) {
  at::Tensor a = bytes(16 * kMiB);
  a.fill_(1);
  const at::Tensor late = at::empty({4}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  const c10::Stream user = new_stream();
  at::Tensor view = a.slice(0, 0, 4);
  c10::Event written(c10::DeviceType::PrivateUse1);
  written.record(default_stream());
  written.block(user);
  simulator_.set_race_action(RaceAction::kRecord);
  // The block is freed while a copy on another stream, which nobody recorded, has not run yet.
  StreamHold hold = simulator_.hold(user);
  {
    const c10::StreamGuard guard(user);
    late.copy_(view, /*non_blocking=*/true);
  }
  view.reset();
  a.reset();
  default_stream().synchronize();
  hold.release();
  user.synchronize();
  EXPECT_TRUE(late.equal(at::full({4}, kPoisonByte, at::kByte)));
}

TEST_F(SimulatorMemoryTest, WorkQueuedBeforeTheFreeStillSeesTheValues) {
  StreamHold hold = simulator_.hold(default_stream());
  at::Tensor a = at::full({4}, 3, at::TensorOptions().device(simulator_.device()));
  const at::Tensor b = a.add(1);
  a.reset();
  hold.release();
  EXPECT_TRUE(b.to(at::kCPU).equal(at::full({4}, 4)));
}

TEST_F(SimulatorMemoryTest, ResizingKeepsTheValues) {
  at::Tensor a = at::full({4}, 3, at::TensorOptions().device(simulator_.device()));
  a.resize_({1000});
  EXPECT_TRUE(a.slice(0, 0, 4).to(at::kCPU).equal(at::full({4}, 3)));
  a.resize_({2, 2});
  EXPECT_TRUE(a.to(at::kCPU).equal(at::full({2, 2}, 3)));
}

}  // namespace
}  // namespace offstage::testing
