// SPDX-License-Identifier: Apache-2.0
// Virtual time of programs that use the simulated accelerator through LibTorch.
#include "timeline_fixture.hpp"

#include <offstage/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>

#include <chrono>
#include <string>
#include <vector>

namespace offstage::testing {
namespace {

TEST_F(TimelineTest, ACopyTakesItsBytesAndAKernelItsLatency) {
  const at::Tensor host = pinned_bytes(50'000);
  at::Tensor device = device_bytes(50'000);
  device.copy_(host, /*non_blocking=*/true);
  device.add_(1);
  EXPECT_EQ(simulator_.timeline().host, nanoseconds(0)) << "nothing has waited";
  default_stream().synchronize();
  const Timeline timeline = simulator_.timeline();
  EXPECT_EQ(timeline.host, microseconds(150));
  EXPECT_EQ(timeline.host_waited, microseconds(150));
  EXPECT_EQ(timeline.makespan, microseconds(150));
  ASSERT_EQ(timeline.streams.size(), 1U);
  EXPECT_EQ(timeline.streams[0].stream, "sim:0 default stream");
  EXPECT_EQ(timeline.streams[0].busy, microseconds(150));
  EXPECT_EQ(timeline.streams[0].stalled, nanoseconds(0));
}

TEST_F(TimelineTest, CopiesOverlapWithKernelsAndAWaitStallsItsStream) {
  const at::Tensor host = pinned_bytes(150'000);
  at::Tensor first = device_bytes(64);
  at::Tensor second = device_bytes(150'000);
  order(default_stream(), copies_);
  first.fill_(1);                                                   // 0 .. 100
  on(copies_, [&] { second.copy_(host, /*non_blocking=*/true); });  // 0 .. 150
  order(copies_, default_stream());
  second.add_(1);  // 150 .. 250
  default_stream().synchronize();
  const Timeline timeline = simulator_.timeline();
  EXPECT_EQ(timeline.makespan, microseconds(250));
  ASSERT_EQ(timeline.streams.size(), 2U);
  EXPECT_EQ(timeline.streams[0].busy, microseconds(200));
  EXPECT_EQ(timeline.streams[0].stalled, microseconds(50));
  EXPECT_EQ(timeline.streams[1].busy, microseconds(150));
  EXPECT_EQ(timeline.streams[1].end, microseconds(150));
}

TEST_F(TimelineTest, ADirectionCarriesOneCopyAtATimeAndTheOtherIsFree) {
  const std::vector<at::Tensor> hosts = {pinned_bytes(10'000), pinned_bytes(10'000),
                                         pinned_bytes(10'000)};
  const std::vector<at::Tensor> devices = {device_bytes(10'000), device_bytes(10'000),
                                           device_bytes(10'000)};
  devices[2].zero_();
  default_stream().synchronize();  // 100 us.
  const c10::Stream second = new_stream();
  const c10::Stream third = new_stream();
  on(copies_, [&] { devices[0].copy_(hosts[0], true); });  // 100 .. 110
  on(second, [&] { devices[1].copy_(hosts[1], true); });   // 110 .. 120: the engine is taken.
  on(third, [&] { hosts[2].copy_(devices[2], true); });    // 100 .. 110: the other direction.
  for (const c10::Stream& stream : {copies_, second, third}) stream.synchronize();
  const Timeline timeline = simulator_.timeline();
  ASSERT_EQ(timeline.streams.size(), 4U);
  EXPECT_EQ(timeline.streams[1].end, microseconds(110));
  EXPECT_EQ(timeline.streams[2].end, microseconds(120));
  EXPECT_EQ(timeline.streams[2].stalled, microseconds(10));
  EXPECT_EQ(timeline.streams[3].end, microseconds(110));
}

TEST_F(TimelineTest, PageableMemoryIsSlowerAndBlocksTheHost) {
  at::Tensor device = device_bytes(1'000);
  device.copy_(at::zeros({1'000}, at::kByte), /*non_blocking=*/true);
  EXPECT_EQ(simulator_.timeline().host, microseconds(10));
}

TEST_F(TimelineTest, CallsOfTheHostTakeItsTimeAndDelayWhatTheyQueue) {
  CostModel costs = round_costs();
  costs.enqueue = microseconds(5);
  costs.allocate_cached = microseconds(1);
  costs.allocate_segment = microseconds(200);
  costs.release_segment = microseconds(300);
  simulator_.set_costs(costs);
  {
    at::Tensor device = device_bytes(64);  // 201 us.
    device.fill_(1);                       // Queued at 206, done at 306.
    default_stream().synchronize();
    EXPECT_EQ(simulator_.timeline().host, microseconds(306));
    (void)device_bytes(64);  // From the same segment.
    EXPECT_EQ(simulator_.timeline().host, microseconds(307));
  }
  simulator_.advance_host(microseconds(3));
  simulator_.empty_cache();
  EXPECT_EQ(simulator_.timeline().host, microseconds(610));
}

TEST_F(TimelineTest, AnEventIsReachedWhenItsTimeHasCome) {
  CostModel costs = round_costs();
  costs.query = microseconds(30);
  simulator_.set_costs(costs);
  at::Tensor device = device_bytes(64);
  device.fill_(1);
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(default_stream());
  int answers = 0;
  while (!event.query()) ++answers;
  EXPECT_EQ(answers, 3) << "at 30, 60 and 90 us of 100";
}

TEST_F(TimelineTest, SpansAreKeptWhileRecordingIsOn) {
  at::Tensor device = device_bytes(64);
  device.fill_(1);
  EXPECT_TRUE(simulator_.timeline().spans.empty());
  simulator_.record_timeline(true);
  device.add_(1);
  const Timeline timeline = simulator_.timeline();
  ASSERT_EQ(timeline.spans.size(), 1U);
  EXPECT_EQ(timeline.spans[0].name, "aten::add");
  EXPECT_EQ(timeline.spans[0].engine, Engine::kCompute);
  EXPECT_EQ(to_string(timeline.spans[0].engine), "compute");
  EXPECT_EQ(timeline.spans[0].start, microseconds(100));
  EXPECT_EQ(timeline.spans[0].end, microseconds(200));
}

TEST_F(TimelineTest, ADelayIsOfItsCallAndOfNoOther) {
  at::Tensor device = device_bytes(64);
  FaultScript& faults = simulator_.faults();
  faults.delay(FaultPoint::kKernel, FaultWhen::nth(1), microseconds(7));
  faults.fail(FaultPoint::kKernel, FaultWhen::nth(1), Fault::kLibTorch);
  const auto hits = faults.hits();
  EXPECT_THROW(device.fill_(1), c10::Error);
  EXPECT_EQ(faults.hits(), hits + 1) << "one call, two rules";
  device.fill_(1);
  default_stream().synchronize();
  EXPECT_EQ(simulator_.timeline().host, microseconds(100)) << "the delay went with its call";
  faults.delay(FaultPoint::kPin, FaultWhen::nth(1), microseconds(30));
  (void)pinned_bytes(8);
  EXPECT_EQ(simulator_.timeline().host, microseconds(130));
  faults.delay(FaultPoint::kStatistics, FaultWhen::nth(1), microseconds(5));
  (void)c10::getDeviceAllocator(simulator_.device().type())->getMemoryInfo(0);
  EXPECT_EQ(simulator_.timeline().host, microseconds(135));
}

TEST_F(TimelineTest, ADelayOfTheFaultScriptIsAddedToTheTask) {
  at::Tensor device = device_bytes(64);
  simulator_.faults().delay(FaultPoint::kKernel, FaultWhen::nth(2), microseconds(7));
  device.fill_(1);
  device.fill_(2);
  default_stream().synchronize();
  EXPECT_EQ(simulator_.timeline().host, microseconds(207));
}

// 100 runs of a program with four streams; worker threads run as they like.
TEST_F(TimelineTest, FiguresAreTheSameInEveryRun) {
  const std::vector<c10::Stream> streams = {default_stream(), copies_, new_stream(), new_stream()};
  const auto run = [&] {
    simulator_.reset();
    const at::Tensor host = pinned_bytes(4096);
    at::Tensor weight = device_bytes(4096);
    at::Tensor result = at::full({32, 32}, 1.0F, at::TensorOptions().device(simulator_.device()));
    c10::Event event(c10::DeviceType::PrivateUse1);
    for (int round = 0; round < 12; ++round) {
      const c10::Stream& stream = streams[static_cast<std::size_t>(round) % 4];
      const c10::Stream& next = streams[static_cast<std::size_t>(round + 1) % 4];
      on(stream, [&] {
        weight.copy_(host, /*non_blocking=*/true);
        result.copy_(at::mm(result, result));
        weight.record_stream(stream);
      });
      event.record(stream);
      event.block(next);
      if (round % 5 == 4) (void)next.query();
    }
    event.synchronize();
    const Timeline timeline = simulator_.timeline();
    std::vector<nanoseconds> figures = {timeline.host, timeline.host_waited, timeline.makespan};
    for (const StreamTime& stream : timeline.streams) {
      figures.insert(figures.end(), {stream.busy, stream.stalled, stream.end});
    }
    return figures;
  };
  const auto first = run();
  EXPECT_GT(first[2], nanoseconds(0));
  for (int i = 1; i < 100; ++i) ASSERT_EQ(run(), first) << "run " << i;
}

TEST_F(TimelineTest, RatesAndDurationsAreChecked) {
  CostModel costs;
  costs.h2d_bandwidth = 0;
  EXPECT_THROW(simulator_.set_costs(costs), InvalidArgument);
  costs = {};
  costs.query = nanoseconds(0);
  EXPECT_THROW(simulator_.set_costs(costs), InvalidArgument) << "a loop of queries would not end";
  costs = {};
  costs.copy_latency = nanoseconds(-1);
  EXPECT_THROW(simulator_.set_costs(costs), InvalidArgument);
  EXPECT_THROW(simulator_.advance_host(nanoseconds(-1)), InvalidArgument);
}

TEST_F(TimelineTest, ACostThatIsNegativeOrTakesTimeToItsEndIsRefusedAtTheCall) {
  at::Tensor device = device_bytes(64);
  device.fill_(1);
  CostModel costs = round_costs();
  nanoseconds cost{-5};
  costs.kernels["aten::add"] = [&cost](const KernelWork&) { return cost; };
  simulator_.set_costs(costs);
  const auto refused = [&] {
    try {
      (void)device.add(1);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_NE(refused().find("'aten::add' costs -5 ns"), std::string::npos) << refused();
  cost = nanoseconds::max();
  EXPECT_NE(refused().find("'aten::add' costs 9223372036854775807 ns"), std::string::npos)
      << refused();
  cost = nanoseconds::max() / 3;
  EXPECT_EQ(refused(), "none") << "once";
  EXPECT_NE(refused().find("'aten::add' costs 3074457345618258602 ns"), std::string::npos)
      << "but not twice: " << refused();
  cost = microseconds(1);
  EXPECT_EQ(refused(), "none") << "nothing was queued or timed of what was refused";
  EXPECT_THROW(simulator_.advance_host(nanoseconds::max()), InvalidArgument);
  costs.copy_latency = nanoseconds::max();
  EXPECT_THROW(simulator_.set_costs(costs), InvalidArgument);
}

TEST_F(TimelineTest, RatesThatAreTooSlowForTheClockAreRefusedAtTheCall) {
  CostModel costs = round_costs();
  costs.flops_per_microsecond = 1;
  const auto cost_of = [&](std::int64_t flops) {
    return costs.cost_of({.name = "aten::mm", .bytes = 0, .flops = flops});
  };
  EXPECT_EQ(cost_of(2'000'000), std::chrono::seconds(2) + microseconds(100));
  EXPECT_THROW((void)cost_of(std::int64_t{1} << 62), InvalidArgument);
}

TEST_F(TimelineTest, TwoEventsHaveTheVirtualTimeBetweenThem) {
  const c10::DeviceType type = simulator_.device().type();
  c10::Event first(type, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event second(type, c10::EventFlag::BACKEND_DEFAULT);
  at::Tensor device = device_bytes(64);
  device.fill_(1);
  first.record(default_stream());
  device.add_(1);
  device.add_(1);
  second.record(default_stream());
  EXPECT_THROW((void)first.elapsedTime(second), c10::Error) << "they are not reached";
  default_stream().synchronize();
  EXPECT_DOUBLE_EQ(first.elapsedTime(second), 0.2);
  EXPECT_DOUBLE_EQ(second.elapsedTime(first), -0.2);
}

}  // namespace
}  // namespace offstage::testing
