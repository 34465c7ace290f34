// SPDX-License-Identifier: Apache-2.0
// What LibTorch asks of a device besides its kernels: guards, hooks and storages that grow.
#include "simulator_fixture.hpp"

#include <offstage/base/bytes.hpp>
#include <offstage/base/error.hpp>

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/DeviceGuard.h>

namespace offstage::testing {
namespace {

class SimulatorGuardTest : public SimulatorTest {
 protected:
  c10::Device device_at(int index) const {
    return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
  }

  const c10::Stream copies_ = new_stream();
};

TEST_F(SimulatorGuardTest, TheHooksKnowTheDevices) {
  const auto& hooks = at::detail::getPrivateUse1Hooks();
  EXPECT_TRUE(hooks.hasPrimaryContext(1));
  EXPECT_FALSE(hooks.hasPrimaryContext(2));
  EXPECT_FALSE(hooks.hasPrimaryContext(-1));
  EXPECT_THROW(hooks.setCurrentDevice(2), c10::Error);
  EXPECT_EQ(hooks.exchangeDevice(1), 0);
  EXPECT_EQ(hooks.exchangeDevice(0), 1);
  EXPECT_NE(hooks.getNewGenerator(0), hooks.getDefaultGenerator(0));
}

TEST_F(SimulatorGuardTest, AnUncheckedDeviceThatIsNotThereIsNotSet) {
  guard_.uncheckedSetDevice(device_at(2));
  EXPECT_EQ(guard_.getDevice(), simulator_.device(0));
  guard_.uncheckedSetDevice(device_at(-1));
  EXPECT_EQ(guard_.getDevice(), simulator_.device(0));
}

TEST_F(SimulatorGuardTest, WithoutAnIndexTheCurrentDeviceIsMeant) {
  const c10::DeviceGuard second(simulator_.device(1));
  EXPECT_EQ(guard_.getStream(device_at(-1)).device(), simulator_.device(1));
}

TEST_F(SimulatorGuardTest, StreamsOfOthersAreRefused) {
  EXPECT_THROW((void)simulator_.hold(c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU))),
               c10::Error);
  const c10::Stream none(c10::Stream::UNSAFE, simulator_.device(), 99);
  EXPECT_THROW((void)guard_.exchangeStream(none), c10::Error);
  EXPECT_EQ(guard_.getStream(simulator_.device()), default_stream());
}

TEST_F(SimulatorGuardTest, AStorageGrowsOnItsOwnDevice) {
  at::Tensor x = at::ones({4}, on_device(1));
  x.resize_({1000});
  EXPECT_EQ(x.storage().nbytes(), 4000U);
  EXPECT_EQ(simulator_.memory(0).allocated, 0);
  EXPECT_EQ(simulator_.memory(1).allocated, 4096);
  EXPECT_EQ(guard_.getDevice(), simulator_.device(0));
}

TEST_F(SimulatorGuardTest, AStorageThatCannotGrowLeavesTheCurrentDevice) {
  at::Tensor x = at::ones({4}, on_device(1));
  simulator_.faults().fail(FaultPoint::kAllocate, FaultWhen::nth(1), Fault::kOutOfMemory);
  EXPECT_THROW(x.resize_({1000}), c10::OutOfMemoryError);
  EXPECT_EQ(guard_.getDevice(), simulator_.device(0));
}

TEST_F(SimulatorGuardTest, AStorageOfFixedSizeDoesNotGrow) {
  const at::Tensor block = at::ones({4}, on_device());
  const c10::Storage fixed(c10::Storage::use_byte_size_t(), 16,
                           c10::DataPtr(block.data_ptr(), simulator_.device()));
  at::Tensor view = at::empty({0}, on_device()).set_(fixed, 0, {4}, {1});
  EXPECT_THROW(view.resize_({1000}), c10::Error);
}

TEST_F(SimulatorGuardTest, AStorageThatGrowsOnAnotherStreamKeepsItsOldBlockUntilItIsCopied) {
  at::Tensor x = at::ones({4}, on_device());
  order(default_stream(), copies_);
  on(copies_, [&] { x.resize_({1000}); });
  simulator_.empty_cache();
  EXPECT_NO_THROW(simulator_.synchronize());
  EXPECT_TRUE(simulator_.races().empty());
  on(copies_, [&] { x.reset(); });
}

TEST_F(SimulatorGuardTest, ASynchronisationThatIsIgnoredOrdersNothing) {
  at::Tensor x = at::ones({4}, on_device());
  order(default_stream(), copies_);
  on(copies_, [&] { x.fill_(2); });
  c10::Event filled(c10::DeviceType::PrivateUse1);
  filled.record(copies_);
  simulator_.faults().fail(FaultPoint::kSynchronize, FaultWhen::from(1), Fault::kIgnored);
  copies_.synchronize();
  EXPECT_THROW((void)x.add(1), RaceError);
  guard_.synchronizeDevice(0);
  EXPECT_THROW((void)x.add(1), RaceError);
  filled.synchronize();
  EXPECT_THROW((void)x.add(1), RaceError);
  simulator_.faults().clear();
  filled.synchronize();
  EXPECT_NO_THROW((void)x.add(1));
}

TEST_F(SimulatorGuardTest, AQueryOfAStreamOrAnEventCanFail) {
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(default_stream());
  simulator_.faults().fail(FaultPoint::kQuery, FaultWhen::from(1), Fault::kAccelerator);
  EXPECT_THROW((void)default_stream().query(), c10::AcceleratorError);
  EXPECT_THROW((void)event.query(), c10::AcceleratorError);
}

TEST_F(SimulatorGuardTest, AnErrorThatIsPendingIsForgottenWithTheFaults) {
  at::Tensor x = at::ones({4}, on_device());
  simulator_.faults().fail(FaultPoint::kKernel, FaultWhen::nth(1), Fault::kAsynchronous);
  x.fill_(2);
  simulator_.faults().clear();
  EXPECT_NO_THROW(x.fill_(3));
}

TEST_F(SimulatorGuardTest, OfTwoFaultsOfACallTheFirstIsThrown) {
  at::Tensor x = at::ones({4}, on_device());
  simulator_.faults().fail(FaultPoint::kKernel, FaultWhen::nth(1), Fault::kStandard);
  simulator_.faults().fail(FaultPoint::kKernel, FaultWhen::nth(1), Fault::kOutOfMemory);
  try {
    x.fill_(2);
    FAIL() << "two faults, and none was thrown";
  } catch (const c10::Error&) {
    FAIL() << "the second was thrown";
  } catch (const std::runtime_error&) {
    SUCCEED();
  }
}

TEST_F(SimulatorGuardTest, HostAccessesOfOtherThanPinnedMemoryAreNotWatched) {
  const at::Tensor x = at::ones({4}, on_device());
  EXPECT_NO_THROW(simulator_.host_reads(x.data_ptr(), 16));
  EXPECT_NO_THROW(simulator_.host_writes(x.data_ptr(), 16));
}

TEST_F(SimulatorGuardTest, AnErrorOfQueuedWorkIsThrownByTheReset) {
  {
    const at::Tensor x = at::ones({2, 2}, on_device());
    (void)x.gather(0, at::full({1, 1}, 9, on_device().dtype(at::kLong)));
  }
  EXPECT_THROW(simulator_.reset(), c10::Error);
}

TEST_F(SimulatorGuardTest, HolesAreOfTheStreamThatIsNamed) {
  const Fragmentation holes = simulator_.fragment(copies_, 8 * kMiB, 1);
  EXPECT_EQ(simulator_.memory().reserved, 20 * kMiB);
  const at::Tensor other = at::empty({8 * kMiB}, on_device().dtype(at::kByte));
  EXPECT_EQ(simulator_.memory().reserved, 40 * kMiB) << "the hole is not of this stream";
  EXPECT_THROW((void)simulator_.fragment(copies_, 8 * kMiB, 0), InvalidArgument);
}

}  // namespace
}  // namespace offstage::testing
