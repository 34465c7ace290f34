// SPDX-License-Identifier: Apache-2.0
// Memory as others leave it, figures as bad allocators tell them, and what a test leaves behind.
#include "simulator_fixture.hpp"

#include <offstage/base/error.hpp>
#include <offstage/device/generic_telemetry.hpp>
#include <offstage/device/telemetry_figures.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

namespace offstage::testing {
namespace {

using ::testing::HasSubstr;

class SimulatorConditionsTest : public SimulatorTest {
 protected:
  at::Tensor bytes(std::int64_t count) const {
    return at::empty({count}, at::TensorOptions().dtype(at::kByte).device(simulator_.device()));
  }

  AllocatorStats stats() { return read_allocator_stats(telemetry_, simulator_.device()); }
  DeviceMemory memory() { return read_device_memory(telemetry_, simulator_.device()); }

  std::string residue() const {
    try {
      simulator_.reset();
    } catch (const StateError& error) {
      return error.what();
    }
    return "none";
  }

  GenericTelemetry telemetry_;
};

TEST_F(SimulatorConditionsTest, AnotherProcessTakesFromTheDeviceAndNotFromTheAllocator) {
  simulator_.set_capacity(0, 100 * kMiB);
  const at::Tensor mine = bytes(20 * kMiB);
  simulator_.set_used_by_others(0, 50 * kMiB);
  EXPECT_EQ(memory().free, 30 * kMiB);
  EXPECT_EQ(memory().total, 100 * kMiB);
  EXPECT_EQ(stats().reserved, 20 * kMiB);
  EXPECT_THROW((void)bytes(32 * kMiB), c10::OutOfMemoryError);
  EXPECT_NO_THROW((void)bytes(30 * kMiB));
  simulator_.set_used_by_others(0, 0);
  EXPECT_NO_THROW((void)bytes(32 * kMiB));
  EXPECT_THROW(simulator_.set_used_by_others(0, -1), InvalidArgument);
}

TEST_F(SimulatorConditionsTest, AFractionLimitsThisProcessWhileTheDeviceSaysThatMoreIsFree) {
  simulator_.set_capacity(0, 100 * kMiB);
  simulator_.set_memory_fraction(0, 0.25);
  EXPECT_THROW((void)bytes(26 * kMiB), c10::OutOfMemoryError);
  EXPECT_NO_THROW((void)bytes(24 * kMiB));
  EXPECT_EQ(memory().free, 76 * kMiB);
  for (const double wrong : {0.0, -0.5, 1.5}) {
    EXPECT_THROW(simulator_.set_memory_fraction(0, wrong), InvalidArgument);
  }
}

TEST_F(SimulatorConditionsTest, HolesHoldWhatFitsAndNothingLarger) {
  simulator_.set_capacity(0, 80 * kMiB);
  {
    // Four of 20 MiB, each a hole of 8 MiB, a block of 8 MiB and a rest.
    const Fragmentation holes = simulator_.fragment(default_stream(), 8 * kMiB, 4);
    EXPECT_EQ(simulator_.memory().reserved, 80 * kMiB);
    EXPECT_EQ(simulator_.memory().allocated, 32 * kMiB);
    EXPECT_EQ(simulator_.memory().inactive_split, 48 * kMiB);
    EXPECT_THROW((void)bytes(9 * kMiB), c10::OutOfMemoryError);
    std::vector<at::Tensor> kept;
    for (int i = 0; i < 4; ++i) kept.push_back(bytes(8 * kMiB));
    EXPECT_THROW((void)bytes(8 * kMiB), c10::OutOfMemoryError);
  }
  EXPECT_EQ(simulator_.memory().allocated, 0);
  EXPECT_THROW((void)simulator_.fragment(default_stream(), 0, 4), InvalidArgument);
}

TEST_F(SimulatorConditionsTest, PartialStatisticsLeaveOutTheSplitBytes) {
  const at::Tensor small = bytes(512);
  EXPECT_EQ(stats().inactive_split, 2 * kMiB - 512);
  simulator_.set_statistics(SimulatedStatistics::kPartial);
  EXPECT_EQ(stats().reserved, 2 * kMiB);
  EXPECT_EQ(stats().allocated, 512);
  EXPECT_EQ(stats().inactive_split, 0);
}

TEST_F(SimulatorConditionsTest, AbsentStatisticsAreZerosAndAnImpossibleDevice) {
  const at::Tensor small = bytes(512);
  simulator_.set_statistics(SimulatedStatistics::kAbsent);
  EXPECT_EQ(stats().reserved, 0);
  EXPECT_EQ(stats().allocated, 0);
  EXPECT_THROW((void)memory(), TelemetryError);
}

TEST_F(SimulatorConditionsTest, WrongStatisticsAreRefusedByTheReader) {
  const at::Tensor small = bytes(512);
  simulator_.set_statistics(SimulatedStatistics::kWrong);
  EXPECT_THROW((void)stats(), TelemetryError);
  EXPECT_THROW((void)memory(), TelemetryError);
}

TEST_F(SimulatorConditionsTest, AResetBringsEverythingBack) {
  simulator_.set_capacity(0, 10 * kMiB);
  simulator_.set_used_by_others(0, 5 * kMiB);
  simulator_.set_memory_fraction(0, 0.1);
  simulator_.set_statistics(SimulatedStatistics::kAbsent);
  simulator_.set_race_action(RaceAction::kIgnore);
  CostModel costs;
  costs.query = std::chrono::seconds(1);
  simulator_.set_costs(costs);
  simulator_.record_timeline(true);
  simulator_.advance_host(std::chrono::seconds(1));
  simulator_.faults().fail(FaultPoint::kAllocate, FaultWhen::from(1), Fault::kDeath);
  EXPECT_THROW((void)bytes(1), c10::AcceleratorError);
  simulator_.reset();
  EXPECT_EQ(memory().total, simulator_.options().capacity_bytes);
  EXPECT_EQ(memory().free, simulator_.options().capacity_bytes);
  EXPECT_EQ(simulator_.timeline().host, std::chrono::nanoseconds(0));
  EXPECT_EQ(simulator_.costs().query, CostModel().query);
  bytes(4).fill_(1);
  EXPECT_TRUE(simulator_.timeline().spans.empty()) << "nothing is recorded";
  EXPECT_NO_THROW((void)bytes(64 * kMiB));
  EXPECT_THROW((void)bytes(4).add(1), RaceError) << "the checker is on again";
}

TEST_F(SimulatorConditionsTest, AResetSaysWhatATestLeftBehindInItsThread) {
  EXPECT_EQ(residue(), "none");
  {
    const c10::StreamGuard stream(new_stream(1));
    EXPECT_THAT(residue(),
                AllOf(HasSubstr("device 1 is current"), HasSubstr("is current on device 1")));
  }
  {
    const c10::InferenceMode mode;
    EXPECT_THAT(residue(), HasSubstr("inference mode is on"));
  }
  {
    const c10::AutoGradMode mode(false);
    EXPECT_THAT(residue(), HasSubstr("grad mode is off"));
  }
  EXPECT_EQ(residue(), "none");
}

TEST_F(SimulatorConditionsTest, AFractionIsOneOfALaterCapacityToo) {
  simulator_.set_capacity(0, 100 * kMiB);
  simulator_.set_memory_fraction(0, 0.25);
  simulator_.set_capacity(0, 200 * kMiB);
  EXPECT_THROW((void)bytes(52 * kMiB), c10::OutOfMemoryError);
  EXPECT_NO_THROW((void)bytes(50 * kMiB));
  simulator_.set_capacity(0, 40 * kMiB);
  simulator_.empty_cache();
  EXPECT_THROW((void)bytes(12 * kMiB), c10::OutOfMemoryError);
}

}  // namespace
}  // namespace offstage::testing
