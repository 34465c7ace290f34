// SPDX-License-Identifier: Apache-2.0
#include "simulator_fixture.hpp"

#include <offstage/base/error.hpp>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <cstring>

namespace offstage::testing {
namespace {

class SimulatorHostMemoryTest : public SimulatorTest {
 protected:
  static at::Tensor over(void* data, std::int64_t bytes) {
    return at::from_blob(data, {bytes}, at::TensorOptions().dtype(at::kByte));
  }

  static at::Tensor pinned_bytes(std::int64_t size) {
    return at::empty({size}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  }

  std::shared_ptr<HostMemory> memory_ = simulator_.host_memory();
};

TEST_F(SimulatorHostMemoryTest, PinningRegistersExactlyTheRange) {
  EXPECT_EQ(memory_->name(), "simulated");
  EXPECT_TRUE(memory_->pins());
  auto* const data = static_cast<std::byte*>(memory_->allocate(10'000));
  const std::int64_t before = simulator_.pinned_bytes();
  EXPECT_FALSE(over(data, 1).is_pinned());
  memory_->pin(data, 10'000);
  EXPECT_EQ(simulator_.pinned_bytes() - before, 10'000);
  EXPECT_TRUE(over(data, 10'000).is_pinned());
  EXPECT_TRUE(over(data + 9'999, 1).is_pinned());
  EXPECT_FALSE(over(data + 10'000, 1).is_pinned());
  EXPECT_TRUE(simulator_.is_pinned(data, 10'000));
  EXPECT_FALSE(simulator_.is_pinned(data, 10'001));
  EXPECT_FALSE(simulator_.is_pinned(data + 1, 10'000));
  memory_->unpin(data, 10'000);
  EXPECT_EQ(simulator_.pinned_bytes(), before);
  EXPECT_FALSE(over(data, 1).is_pinned());
  memory_->free(data, 10'000);
}

TEST_F(SimulatorHostMemoryTest, TheAllocatorClonesWholeBlocks) {
  at::HostAllocator& allocator = *at::getHostAllocator(c10::DeviceType::PrivateUse1);
  const at::Tensor bytes = pinned_bytes(1000);
  for (int i = 0; i < 1000; ++i) {
    bytes.mutable_data_ptr<std::uint8_t>()[i] = static_cast<std::uint8_t>(i % 251);
  }
  const c10::DataPtr clone = allocator.clone(bytes.data_ptr(), 1000);
  EXPECT_EQ(std::memcmp(clone.get(), bytes.data_ptr(), 1000), 0);
}

TEST_F(SimulatorHostMemoryTest, OverlappingAndUnknownRangesAreRefused) {
  auto* const data = static_cast<std::byte*>(memory_->allocate(8192));
  memory_->pin(data, 4096);
  EXPECT_THROW(memory_->pin(data, 4096), HostMemoryError);
  EXPECT_THROW(memory_->pin(data + 4095, 2), HostMemoryError);
  EXPECT_THROW(memory_->pin(data - 1, 2), HostMemoryError);
  EXPECT_THROW(memory_->pin(data, 0), InvalidArgument);
  EXPECT_THROW(memory_->unpin(data, 4095), HostMemoryError);
  EXPECT_THROW(memory_->unpin(data + 1, 4095), HostMemoryError);
  EXPECT_NO_THROW(memory_->pin(data + 4096, 4096));
  memory_->unpin(data, 4096);
  memory_->unpin(data + 4096, 4096);
  memory_->free(data, 8192);
}

TEST_F(SimulatorHostMemoryTest, CopiesFromRegisteredMemoryAreQueued) {
  auto* const data = static_cast<std::byte*>(memory_->allocate(4096));
  memory_->pin(data, 4096);
  std::memset(data, 7, 4096);
  StreamHold hold = simulator_.hold(default_stream());
  const at::Tensor device = over(data + 100, 50).to(simulator_.device(), /*non_blocking=*/true);
  std::memset(data, 9, 4096);  // Too early, which proves that the copy has not run yet.
  hold.release();
  EXPECT_TRUE(device.to(at::kCPU).equal(at::full({50}, 9, at::kByte)));
  memory_->unpin(data, 4096);
  memory_->free(data, 4096);
}

TEST_F(SimulatorHostMemoryTest, ACopyMustLieInOneRegistration) {
  auto* const data = static_cast<std::byte*>(memory_->allocate(8192));
  memory_->pin(data, 4096);
  memory_->pin(data + 4096, 4096);
  EXPECT_THROW((void)over(data, 8192).to(simulator_.device(), /*non_blocking=*/true), c10::Error);
  EXPECT_NO_THROW((void)over(data, 4096).to(simulator_.device(), /*non_blocking=*/true));
  simulator_.synchronize();
  memory_->unpin(data, 4096);
  memory_->unpin(data + 4096, 4096);
  memory_->free(data, 8192);
}

TEST_F(SimulatorHostMemoryTest, LibTorchPinsExactSizes) {
  const std::int64_t before = simulator_.pinned_bytes();
  const at::Tensor host = pinned_bytes(5000);
  EXPECT_TRUE(host.is_pinned());
  EXPECT_TRUE(host.slice(0, 4999).is_pinned());
  EXPECT_EQ(simulator_.pinned_bytes() - before, 5000);
  EXPECT_TRUE(at::full({3}, 1).pin_memory().is_pinned());
  EXPECT_EQ(simulator_.pinned_bytes() - before, 5000);
  const auto stats = at::getHostAllocator(c10::DeviceType::PrivateUse1)->get_stats();
  EXPECT_GE(stats.allocated_bytes.current, 5000);
  EXPECT_EQ(pinned_bytes(0).numel(), 0);
}

TEST_F(SimulatorHostMemoryTest, HostMemoryOfAQueuedCopyOutlivesItsTensor) {
  const std::int64_t before = simulator_.pinned_bytes();
  StreamHold hold = simulator_.hold(default_stream());
  at::Tensor device;
  {
    const at::Tensor host = pinned_bytes(5000);
    host.fill_(3);
    device = host.to(simulator_.device(), /*non_blocking=*/true);
  }
  at::Tensor other = pinned_bytes(5000);
  other.fill_(4);
  EXPECT_EQ(simulator_.pinned_bytes() - before, 10'000) << "not unmapped, not reused";
  hold.release();
  EXPECT_TRUE(device.to(at::kCPU).equal(at::full({5000}, 3, at::kByte)));
  EXPECT_EQ(simulator_.pinned_bytes() - before, 5000);
}

TEST_F(SimulatorHostMemoryTest, DownloadsToFreshPinnedMemoryAreQueued) {
  at::Tensor device = at::full({8}, 2, at::TensorOptions().device(simulator_.device()));
  StreamHold hold = simulator_.hold(default_stream());
  const at::Tensor host = device.add(1).to(at::kCPU, /*non_blocking=*/true);
  EXPECT_TRUE(host.is_pinned());
  hold.release();
  default_stream().synchronize();
  EXPECT_TRUE(host.equal(at::full({8}, 3)));
}

TEST_F(SimulatorHostMemoryTest, OfARangeThatTheHostUsesThePinnedPartsAreLookedAt) {
  constexpr std::int64_t kPage = 4096;
  auto* const first = static_cast<std::byte*>(memory_->allocate(4 * kPage));
  memory_->pin(first + kPage, kPage);
  memory_->pin(first + 2 * kPage, kPage);
  const at::Tensor device = at::ones({kPage}, on_device().dtype(at::kByte));
  const auto race_of = [&](std::int64_t begin, std::int64_t end) {
    try {
      simulator_.host_reads(first + begin, end - begin);
    } catch (const RaceError& error) {
      return error.report().begin - reinterpret_cast<std::uintptr_t>(first);
    }
    return std::uintptr_t{0};
  };
  over(first + 2 * kPage, kPage).copy_(device, /*non_blocking=*/true);
  EXPECT_EQ(race_of(2 * kPage, 4 * kPage), 2 * kPage) << "it ends beyond the registration";
  EXPECT_EQ(race_of(0, 4 * kPage), 2 * kPage) << "it begins before two of them";
  EXPECT_EQ(race_of(kPage + 1, 2 * kPage + 1), 2 * kPage) << "it crosses from one to the other";
  EXPECT_EQ(race_of(0, 2 * kPage), 0U);
  EXPECT_EQ(race_of(3 * kPage, 4 * kPage), 0U);
  default_stream().synchronize();
  memory_->unpin(first + kPage, kPage);
  memory_->unpin(first + 2 * kPage, kPage);
  memory_->free(first, 4 * kPage);
}

TEST_F(SimulatorHostMemoryTest, MemoryThatIsFreedWhilePinnedIsPinnedNoLonger) {
  constexpr std::int64_t kPage = 4096;
  const std::int64_t before = simulator_.pinned_bytes();
  auto* const data = static_cast<std::byte*>(memory_->allocate(3 * kPage));
  memory_->pin(data, kPage);
  memory_->pin(data + kPage, 2 * kPage);
  memory_->free(data, 3 * kPage);
  EXPECT_EQ(simulator_.pinned_bytes(), before);
  EXPECT_THROW(simulator_.synchronize(), HostMemoryError);
}

}  // namespace
}  // namespace offstage::testing
