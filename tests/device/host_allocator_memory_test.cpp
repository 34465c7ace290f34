// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/host_allocator_memory.hpp>
#include <offstage/testing/simulator.hpp>

#include <gtest/gtest.h>

namespace offstage {
namespace {

class HostAllocatorMemoryTest : public ::testing::Test {
 protected:
  testing::Simulator& simulator = testing::Simulator::install();
};

TEST_F(HostAllocatorMemoryTest, GivesMemoryThatTheDeviceKnowsAsPinned) {
  HostAllocatorMemory memory(simulator.device().type());
  EXPECT_TRUE(memory.pins());
  const std::int64_t before = simulator.pinned_bytes();
  void* data = memory.allocate(4096);
  EXPECT_TRUE(simulator.is_pinned(data, 4096));
  EXPECT_GE(simulator.pinned_bytes(), before + 4096);
  memory.free(data, 4096);
}

TEST_F(HostAllocatorMemoryTest, TellsThatAnAllocatorOfExactSizesTakesWholePages) {
  const HostAllocatorMemory memory(simulator.device().type());
  EXPECT_EQ(memory.taken_bytes(5 * host_page_bytes()), 5 * host_page_bytes());
  EXPECT_EQ(memory.taken_bytes(1), host_page_bytes());
}

TEST_F(HostAllocatorMemoryTest, AnAllocatorThatDoesNotAnswerCountsAsRounding) {
  simulator.faults().fail(testing::FaultPoint::kPin, testing::FaultWhen::nth(1),
                          testing::Fault::kAccelerator);
  const HostAllocatorMemory memory(simulator.device().type());
  EXPECT_EQ(memory.taken_bytes(5 * 4096), 8 * 4096);
  simulator.faults().clear();
}

TEST_F(HostAllocatorMemoryTest, RefusesSizesThatAreNoSizesAndDevicesWithoutAnAllocator) {
  HostAllocatorMemory memory(simulator.device().type());
  EXPECT_THROW(static_cast<void>(memory.allocate(0)), InvalidArgument);
  EXPECT_FALSE(HostAllocatorMemory::is_available(c10::kCPU));
  EXPECT_THROW(HostAllocatorMemory{c10::kCPU}, InvalidArgument);
}

TEST_F(HostAllocatorMemoryTest, ARefusalIsOneLineThatSaysHowManyBytesAndWhy) {
  HostAllocatorMemory memory(simulator.device().type());
  try {
    static_cast<void>(memory.allocate(std::int64_t{1} << 62));
    FAIL() << "expected a HostMemoryError";
  } catch (const HostMemoryError& error) {
    EXPECT_STREQ(error.what(),
                 "host memory: the pinned allocator of sim refused 4611686018427387904 bytes: "
                 "simulated accelerator: no 4611686018427387904 bytes of host memory");
  }
}

TEST_F(HostAllocatorMemoryTest, IsTheDefaultOfADeviceThatHasOne) {
  EXPECT_EQ(default_host_memory(simulator.device().type())->name(), "host_allocator");
  EXPECT_EQ(default_host_memory(c10::kCPU)->name(), "pageable");
}

}  // namespace
}  // namespace offstage
