// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/testing/fake_telemetry.hpp>
#include <offstage/testing/recording_sink.hpp>
#include <offstage/testing/simulator.hpp>

#include <gmock/gmock.h>

#include <memory>
#include <sys/wait.h>
#include <unistd.h>

namespace offstage {
namespace {

class DeviceContextTest : public ::testing::Test {
 protected:
  testing::Simulator& simulator = testing::Simulator::install();
};

TEST_F(DeviceContextTest, HasOneCopyStreamOfItsDeviceThatIsNotTheCurrentOne) {
  const DeviceContext context(simulator.device(1));
  EXPECT_EQ(context.copy_stream().device(), simulator.device(1));
  EXPECT_EQ(context.copy_stream(), context.copy_stream());
  EXPECT_NE(context.copy_stream(), context.current_stream());
}

TEST_F(DeviceContextTest, ChoosesTheServicesOfItsDevice) {
  const DeviceContext context(simulator.device());
  EXPECT_TRUE(context.has_streams());
  EXPECT_TRUE(context.host_memory()->pins());
  ASSERT_NE(context.telemetry(), nullptr);
  EXPECT_EQ(context.telemetry()->name(), "generic");
  EXPECT_EQ(context.sink(), nullptr);
  EXPECT_EQ(&context.pinned_ledger(), PinnedLedger::of_process().get());
}

TEST_F(DeviceContextTest, TakesTheServicesItIsGiven) {
  const auto memory = std::make_shared<PageableHostMemory>();
  const auto telemetry = std::make_shared<testing::FakeTelemetry>();
  const auto sink = std::make_shared<testing::RecordingSink>();
  const auto ledger = std::make_shared<PinnedLedger>();
  const c10::Stream stream = DeviceContext(simulator.device()).copy_stream();
  const DeviceContext context(simulator.device(), {.copy_stream = stream,
                                                   .host_memory = memory,
                                                   .telemetry = telemetry,
                                                   .sink = sink,
                                                   .pinned_ledger = ledger});
  EXPECT_EQ(context.copy_stream(), stream);
  EXPECT_EQ(context.host_memory(), memory);
  EXPECT_EQ(context.telemetry(), telemetry);
  EXPECT_EQ(context.sink(), sink.get());
  EXPECT_EQ(&context.pinned_ledger(), ledger.get());
}

TEST_F(DeviceContextTest, NeedsAnIndexAndACopyStreamOfTheSameDevice) {
  EXPECT_THROW(DeviceContext(c10::Device(simulator.device().type())), InvalidArgument);
  const c10::Stream other = DeviceContext(simulator.device(1)).copy_stream();
  EXPECT_THROW(DeviceContext(simulator.device(0), {.copy_stream = other}), InvalidArgument);
}

TEST_F(DeviceContextTest, OnTheCpuThereAreNoStreamsNoPinningAndNoCache) {
  const DeviceContext context{c10::Device(c10::kCPU)};
  EXPECT_FALSE(context.has_streams());
  EXPECT_FALSE(context.host_memory()->pins());
  EXPECT_EQ(context.telemetry(), nullptr);
  EXPECT_NO_THROW(context.synchronize(context.copy_stream()));
}

TEST_F(DeviceContextTest, SumsWhatWasKeptForEver) {
  DeviceContext context(simulator.device());
  context.add_quarantined(512);
  context.add_quarantined(512);
  context.add_abandoned_host(4096);
  EXPECT_EQ(context.quarantined_bytes(), 1024);
  EXPECT_EQ(context.abandoned_host_bytes(), 4096);
}

TEST_F(DeviceContextTest, AForkedChildKnowsThatItDidNotMakeTheContext) {
  const DeviceContext context(simulator.device());
  EXPECT_TRUE(context.is_creating_process());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(context.is_creating_process() ? 1 : 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace offstage
