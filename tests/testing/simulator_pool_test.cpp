// SPDX-License-Identifier: Apache-2.0
// Blocks that other streams use, who owns an address, and the books of both allocators.
#include "simulator_fixture.hpp"

#include <offstage/base/bytes.hpp>

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <string>

namespace offstage::testing {
namespace {

class SimulatorPoolTest : public SimulatorTest {
 protected:
  at::Tensor bytes(std::int64_t size, int index = 0) const {
    return at::empty({size}, on_device(index).dtype(at::kByte));
  }
  static at::Tensor pinned_bytes(std::int64_t size) {
    return at::empty({size}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  }

  c10::DeviceAllocator& allocator_ = *c10::getDeviceAllocator(c10::DeviceType::PrivateUse1);
  at::HostAllocator& host_allocator_ = *at::getHostAllocator(c10::DeviceType::PrivateUse1);
};

TEST_F(SimulatorPoolTest, TheLastBytesOfASegmentAreUsed) {
  const at::Tensor half = bytes(kMiB);
  EXPECT_EQ(simulator_.memory().allocated, kMiB);
  const at::Tensor most = bytes(kMiB - 512);
  EXPECT_EQ(simulator_.memory().inactive_split, 512);
  const at::Tensor last = bytes(512);
  EXPECT_EQ(simulator_.memory().reserved, 2 * kMiB);
}

TEST_F(SimulatorPoolTest, WhereOthersTakeMoreThanThereIsNothingIsFree) {
  simulator_.set_used_by_others(0, 2 * kGiB);
  EXPECT_EQ(simulator_.memory().free, 0);
  try {
    (void)bytes(1);
    FAIL() << "more than the device has";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_NE(std::string(error.what()).find(" 0 free of "), std::string::npos) << error.what();
  }
}

TEST_F(SimulatorPoolTest, ABlockIsHeldUntilTheLastOfItsUsersIsDone) {
  const c10::Stream first = new_stream();
  const c10::Stream second = new_stream();
  for (const c10::Stream& held : {first, second}) {
    at::Tensor block = bytes(16 * kMiB);
    void* const address = block.data_ptr();
    block.record_stream(first);
    block.record_stream(second);
    const StreamHold hold = simulator_.hold(held);
    block.reset();
    EXPECT_NE(bytes(16 * kMiB).data_ptr(), address);
  }
}

TEST_F(SimulatorPoolTest, AUserOfABlockIsForgottenWithIt) {
  const c10::Stream user = new_stream();
  at::Tensor block = bytes(16 * kMiB);
  void* const address = block.data_ptr();
  block.record_stream(user);
  block.reset();
  block = bytes(16 * kMiB);
  ASSERT_EQ(block.data_ptr(), address);
  block.reset();
  EXPECT_EQ(simulator_.memory().active, 0);
}

TEST_F(SimulatorPoolTest, ABlockIsNotHeldForItsOwnStream) {
  at::Tensor block = bytes(16 * kMiB);
  block.record_stream(default_stream());
  block.reset();
  EXPECT_EQ(simulator_.memory().active, 0);
}

TEST_F(SimulatorPoolTest, AnAddressBelongsToTheDeviceWhoseBlockItIsIn) {
  const auto device_of = [](void* data) {
    return at::globalContext().getDeviceFromPtr(data, c10::DeviceType::PrivateUse1);
  };
  at::Tensor block = bytes(1024, 1);
  auto* const data = static_cast<std::byte*>(block.data_ptr());
  EXPECT_EQ(device_of(data), simulator_.device(1));
  EXPECT_EQ(device_of(data + 1023), simulator_.device(1));
  EXPECT_THROW((void)device_of(data + 1024), c10::Error);
  EXPECT_THROW((void)device_of(&block), c10::Error);
  block.reset();
  EXPECT_THROW((void)device_of(data), c10::Error);
  // No other block lives: the system may have put the segments side by side.
  const at::Tensor segment = bytes(16 * kMiB, 1);
  EXPECT_THROW((void)device_of(static_cast<std::byte*>(segment.data_ptr()) + 16 * kMiB),
               c10::Error);
}

TEST_F(SimulatorPoolTest, TheBooksOfTheDeviceAreKept) {
  constexpr std::size_t kAll = 0;
  constexpr std::size_t kSmall = 1;
  constexpr std::size_t kLarge = 2;
  allocator_.resetAccumulatedStats(0);
  at::Tensor small = bytes(100);
  at::Tensor large = bytes(4 * kMiB);
  auto stats = allocator_.getDeviceStats(0);
  EXPECT_EQ(stats.allocation[kAll].current, 2);
  EXPECT_EQ(stats.active[kAll].current, 2);
  EXPECT_EQ(stats.inactive_split[kAll].current, 2);
  EXPECT_EQ(stats.segment[kSmall].current, 1);
  EXPECT_EQ(stats.allocated_bytes[kSmall].current, 512);
  EXPECT_EQ(stats.allocated_bytes[kLarge].current, 4 * kMiB);
  small.reset();
  const c10::Stream user = new_stream();
  order(default_stream(), user);
  on(user, [&] { large.fill_(1); });
  large.record_stream(user);
  large.reset();
  EXPECT_THROW((void)bytes(2 * kGiB), c10::OutOfMemoryError);
  stats = allocator_.getDeviceStats(0);
  for (const auto* array : {&stats.allocation, &stats.active, &stats.inactive_split, &stats.segment,
                            &stats.allocated_bytes, &stats.reserved_bytes}) {
    for (const auto& stat : *array) EXPECT_EQ(stat.current, 0);
  }
  EXPECT_EQ(stats.num_alloc_retries, 1);
  EXPECT_EQ(stats.num_ooms, 1);
  EXPECT_EQ(stats.num_sync_all_streams, 1);
  EXPECT_EQ(stats.num_device_alloc, 2);
  EXPECT_EQ(stats.num_device_free, 2);
  EXPECT_EQ(stats.allocation[kAll].allocated, 2);
  allocator_.resetAccumulatedStats(0);
  stats = allocator_.getDeviceStats(0);
  EXPECT_EQ(stats.num_alloc_retries + stats.num_ooms + stats.num_sync_all_streams +
                stats.num_device_alloc + stats.num_device_free,
            0);
  EXPECT_EQ(stats.allocation[kAll].allocated, 0);
}

TEST_F(SimulatorPoolTest, TheBooksOfPinnedMemoryAreKept) {
  simulator_.synchronize();
  host_allocator_.empty_cache();
  host_allocator_.reset_accumulated_stats();
  const at::HostStats before = host_allocator_.get_stats();
  EXPECT_EQ(before.num_host_alloc + before.num_host_free, 0);
  at::Tensor host = pinned_bytes(5000);
  void* const address = host.data_ptr();
  at::HostStats stats = host_allocator_.get_stats();
  EXPECT_EQ(stats.allocations.current, before.allocations.current + 1);
  EXPECT_EQ(stats.active_requests.current, before.active_requests.current + 1);
  EXPECT_EQ(stats.allocated_bytes.current, before.allocated_bytes.current + 5000);
  EXPECT_EQ(stats.active_bytes.current, before.active_bytes.current + 5000);
  EXPECT_EQ(stats.num_host_alloc, 1);
  host.reset();
  EXPECT_FALSE(simulator_.is_pinned(address, 5000)) << "it is given back at once";
  stats = host_allocator_.get_stats();
  EXPECT_EQ(stats.allocations.current, before.allocations.current);
  EXPECT_EQ(stats.active_requests.current, before.active_requests.current);
  EXPECT_EQ(stats.allocated_bytes.current, before.allocated_bytes.current);
  EXPECT_EQ(stats.active_bytes.current, before.active_bytes.current);
  EXPECT_EQ(stats.num_host_free, 1);
  EXPECT_EQ(stats.allocations.allocated, 1);
  host_allocator_.reset_accumulated_stats();
  host_allocator_.reset_peak_stats();
  stats = host_allocator_.get_stats();
  EXPECT_EQ(stats.num_host_alloc + stats.num_host_free, 0);
  EXPECT_EQ(stats.allocations.allocated, 0);
  EXPECT_EQ(stats.allocated_bytes.peak, stats.allocated_bytes.current);
}

TEST_F(SimulatorPoolTest, PinnedMemoryOfACopyIsGivenBackByTheNextAllocation) {
  const at::Tensor device = bytes(5000);
  at::Tensor host = pinned_bytes(5000);
  void* const address = host.data_ptr();
  StreamHold hold = simulator_.hold(default_stream());
  device.copy_(host, /*non_blocking=*/true);
  host.reset();
  EXPECT_TRUE(simulator_.is_pinned(address, 5000));
  hold.release();
  simulator_.synchronize();
  const at::Tensor next = pinned_bytes(100);
  EXPECT_FALSE(simulator_.is_pinned(address, 5000));
}

}  // namespace
}  // namespace offstage::testing
