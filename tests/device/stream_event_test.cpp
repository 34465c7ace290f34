// SPDX-License-Identifier: Apache-2.0
#include <offstage/device/device_context.hpp>
#include <offstage/device/stream_event.hpp>
#include <offstage/testing/simulator.hpp>

#include <gtest/gtest.h>

#include <memory>

namespace offstage {
namespace {

class StreamEventTest : public ::testing::Test {
 protected:
  testing::Simulator& simulator = testing::Simulator::install();
  std::shared_ptr<DeviceContext> context = DeviceContext::create(simulator.device());
};

TEST_F(StreamEventTest, OneRecordAndOneBlockAreOneRecordAndOneWaitOfTheDevice) {
  StreamEvent event(simulator.device().type());
  const auto before = simulator.counters();
  event.record(context->copy_stream());
  event.block(context->current_stream());
  const auto done = simulator.counters() - before;
  EXPECT_EQ(done.events_recorded, 1);
  EXPECT_EQ(done.stream_waits, 1);
  EXPECT_EQ(done.host_waits, 0);
}

TEST_F(StreamEventTest, BlockingBeforeAnyRecordWaitsForNothing) {
  const StreamEvent event(simulator.device().type());
  const auto before = simulator.counters();
  event.block(context->current_stream());
  context->synchronize(context->current_stream());
  EXPECT_EQ((simulator.counters() - before).events_recorded, 0);
}

TEST_F(StreamEventTest, SynchronizeMakesTheHostWait) {
  StreamEvent event(simulator.device().type());
  event.record(context->copy_stream());
  const auto before = simulator.counters();
  event.synchronize();
  EXPECT_EQ((simulator.counters() - before).host_waits, 1);
}

TEST_F(StreamEventTest, OnADeviceWithoutEventsEveryCallIsFine) {
  const DeviceContext cpu{c10::Device(c10::kCPU)};
  StreamEvent event(c10::kCPU);
  EXPECT_NO_THROW(event.record(cpu.copy_stream()));
  EXPECT_NO_THROW(event.block(cpu.copy_stream()));
  EXPECT_NO_THROW(event.synchronize());
}

}  // namespace
}  // namespace offstage
