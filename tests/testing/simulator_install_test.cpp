// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <gtest/gtest.h>

#include <cstdlib>

// A program of its own: it starts without the simulator, installs one under another name, and its
// allocator is none that LibTorch can ask for figures.
namespace offstage::testing {
namespace {

Simulator& install() {
  return Simulator::install({.name = "npu",
                             .device_count = 3,
                             .capacity_bytes = 8 * kMiB,
                             .is_device_allocator = false,
                             .poison = false,
                             .race_action = RaceAction::kRecord});
}

TEST(SimulatorInstallTest, WrongOptionsAndLinkingAloneRegisterNothing) {
  // What LibTorch could not read as "name:0", or would take for another device.
  for (const char* name : {"", "own8", "a:b", "Own", "own-chip", "cpu", "cuda", "meta"}) {
    EXPECT_THROW(Simulator::install({.name = name}), InvalidArgument) << name;
  }
  EXPECT_THROW(Simulator::install({.device_count = 0}), InvalidArgument);
  EXPECT_THROW(Simulator::install({.device_count = kMaxSimulatedDevices + 1}), InvalidArgument);
  EXPECT_THROW(Simulator::install({.capacity_bytes = -1}), InvalidArgument);
  EXPECT_THROW(Simulator::install({.capacity_bytes = 0}), InvalidArgument);
  EXPECT_FALSE(c10::is_privateuse1_backend_registered());
  EXPECT_FALSE(c10::impl::hasDeviceGuardImpl(c10::DeviceType::PrivateUse1));
}

TEST(SimulatorInstallTest, ASlotThatIsTakenIsLeftToItsOwner) {
  const auto install_after_another = [] {
    c10::register_privateuse1_backend("other");
    try {
      install();
    } catch (const StateError&) {
      std::_Exit(42);
    }
    std::_Exit(1);
  };
  EXPECT_EXIT(install_after_another(), ::testing::ExitedWithCode(42), "");
}

TEST(SimulatorInstallTest, MemoryIsPinnedBeforeAnythingElseIsUsed) {
  const auto memory = install().host_memory();
  void* const data = memory->allocate(4096);
  memory->pin(data, 4096);
  EXPECT_TRUE(at::from_blob(data, {16}).is_pinned());
  memory->unpin(data, 4096);
  memory->free(data, 4096);
}

TEST(SimulatorInstallTest, RacesAreHandledAsTheOptionsSay) {
  Simulator& simulator = install();
  EXPECT_NO_THROW((void)at::empty({4}, at::TensorOptions().device(simulator.device())).neg());
  EXPECT_EQ(simulator.races().size(), 1U);
  simulator.set_race_action(RaceAction::kThrow);
  simulator.reset();
  EXPECT_NO_THROW((void)at::empty({4}, at::TensorOptions().device(simulator.device())).neg());
  simulator.reset();
}

TEST(SimulatorInstallTest, TheFirstInstallDecides) {
  Simulator& simulator = install();
  EXPECT_EQ(&install(), &simulator);
  EXPECT_EQ(&Simulator::install({.name = "npu", .device_count = 1}), &simulator);
  EXPECT_EQ(simulator.options().device_count, 3);
  EXPECT_THROW(Simulator::install({.name = "sim"}), StateError);
  EXPECT_EQ(c10::get_privateuse1_backend(), "npu");
  EXPECT_EQ(simulator.device(2).str(), "npu:2");
}

TEST(SimulatorInstallTest, APlainAllocatorHasFiguresOnlyInTheSimulatorItself) {
  Simulator& simulator = install();
  c10::Allocator* const allocator = c10::GetAllocator(c10::DeviceType::PrivateUse1);
  EXPECT_EQ(dynamic_cast<c10::DeviceAllocator*>(allocator), nullptr);
  {
    const at::Tensor x = at::empty({4}, at::TensorOptions().device("npu:1"));
    EXPECT_EQ(simulator.memory(1).allocated, 512);
    EXPECT_THROW((void)at::empty({3 * kMiB}, x.options()), c10::OutOfMemoryError);
  }
  EXPECT_EQ(simulator.memory(1).reserved, 2 * kMiB);
  simulator.empty_cache();
  EXPECT_EQ(simulator.memory(1).reserved, 0);
}

TEST(SimulatorInstallTest, WithoutPoisonMemoryIsLeftAsItIs) {
  Simulator& simulator = install();
  void* address = nullptr;
  {
    at::Tensor x = at::empty({4}, at::TensorOptions().device(simulator.device()));
    address = x.data_ptr();
    x.fill_(7);
  }
  const at::Tensor y = at::empty({4}, at::TensorOptions().device(simulator.device()));
  EXPECT_EQ(y.data_ptr(), address);
  simulator.set_race_action(RaceAction::kIgnore);
  EXPECT_EQ(y[3].item<float>(), 7);
}

TEST(SimulatorInstallTest, ResetReportsMemoryInUseAndRestoresTheCapacity) {
  Simulator& simulator = install();
  at::Tensor x = at::empty({4}, at::TensorOptions().device(simulator.device(2)));
  simulator.set_capacity(0, 1);
  try {
    simulator.reset();
    FAIL() << "a tensor is alive";
  } catch (const StateError& error) {
    EXPECT_STREQ(error.what(),
                 "simulated accelerator: device memory is still in use: npu:2 has 512 bytes");
  }
  EXPECT_EQ(simulator.memory(0).total, 8 * kMiB);
  EXPECT_EQ(simulator.memory(2).peak_reserved, 2 * kMiB);
  x.reset();
  EXPECT_NO_THROW(simulator.reset());
  EXPECT_EQ(simulator.memory(2).peak_reserved, 0);
}

TEST(SimulatorInstallTest, CapacitiesAndIndicesAreChecked) {
  Simulator& simulator = install();
  EXPECT_THROW(simulator.set_capacity(0, -1), InvalidArgument);
  EXPECT_THROW(simulator.set_capacity(3, 1), InvalidArgument);
  EXPECT_THROW((void)simulator.memory(3), InvalidArgument);
  EXPECT_THROW((void)simulator.counters(-1), InvalidArgument);
  EXPECT_THROW(simulator.synchronize(3), InvalidArgument);
}

TEST(SimulatorInstallTest, DifferencesOfCountersAreTakenFieldByField) {
  SimulatorCounters later;
  SimulatorCounters earlier;
  later.kernels = 5;
  earlier.kernels = 2;
  later.bytes_d2h = 9;
  SimulatorCounters expected;
  expected.kernels = 3;
  expected.bytes_d2h = 9;
  EXPECT_EQ(later - earlier, expected);
}

}  // namespace
}  // namespace offstage::testing
