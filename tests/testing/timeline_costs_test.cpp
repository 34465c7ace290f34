// SPDX-License-Identifier: Apache-2.0
// What each call and each task costs in virtual time.
#include "timeline_fixture.hpp"

#include <ATen/ops/convolution.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>

#include <optional>

namespace offstage::testing {
namespace {

class TimelineCostsTest : public TimelineTest {
 protected:
  /// What `body` takes of the host's time.
  nanoseconds host_time_of(const std::function<void()>& body) const {
    const nanoseconds before = simulator_.timeline().host;
    body();
    return simulator_.timeline().host - before;
  }

  /// The only task that `body` queues.
  TimelineSpan task_of(const std::function<void()>& body) const {
    simulator_.record_timeline(true);
    const auto before = simulator_.timeline().spans.size();
    body();
    const Timeline timeline = simulator_.timeline();
    EXPECT_EQ(timeline.spans.size(), before + 1);
    return timeline.spans.back();
  }
  nanoseconds time_of(const std::function<void()>& body) const {
    const TimelineSpan task = task_of(body);
    return task.end - task.start;
  }

  void change_costs(const std::function<void(CostModel&)>& change) const {
    CostModel costs = round_costs();
    change(costs);
    simulator_.set_costs(costs);
  }
};

TEST_F(TimelineCostsTest, ProductsConvolutionsAndAttentionAreTimedByTheirOperations) {
  change_costs([](CostModel& costs) {
    costs.kernel_latency = nanoseconds(0);
    costs.flops_per_microsecond = 1000;  // One a nanosecond.
  });
  const at::Tensor left = at::ones({2, 3}, on_device());
  const at::Tensor right = at::ones({3, 4}, on_device());
  EXPECT_EQ(time_of([&] { (void)at::mm(left, right); }), nanoseconds(2 * 2 * 3 * 4));
  EXPECT_EQ(time_of([&] { (void)at::mv(left, right.select(1, 0)); }), nanoseconds(2 * 2 * 3));
  const at::Tensor image = at::ones({1, 2, 4, 4}, on_device());
  const at::Tensor filter = at::ones({3, 2, 1, 1}, on_device());
  EXPECT_EQ(time_of([&] {
              (void)at::convolution(image, filter, std::nullopt, {1, 1}, {0, 0}, {1, 1}, false,
                                    {0, 0}, 1);
            }),
            nanoseconds(2 * 16 * 2 * 3));
  const at::Tensor query = at::ones({1, 1, 2, 4}, on_device());
  EXPECT_EQ(time_of([&] { (void)at::scaled_dot_product_attention(query, query, query); }),
            nanoseconds(4 * 2 * 4 * 2));
}

TEST_F(TimelineCostsTest, OtherKernelsAreTimedByTheirBytes) {
  const at::Tensor bytes = at::ones({1000}, on_device().dtype(at::kByte));
  change_costs([](CostModel& costs) {
    costs.kernel_latency = nanoseconds(0);
    costs.memory_bandwidth = 1000;
  });
  EXPECT_EQ(time_of([&] { (void)bytes.neg(); }), nanoseconds(2000)) << "read and written";
}

TEST_F(TimelineCostsTest, EachWayOfACopyHasItsRate) {
  change_costs([](CostModel& costs) {
    costs.kernel_latency = nanoseconds(0);
    costs.h2d_bandwidth = 1000;
    costs.d2h_bandwidth = 500;
    costs.peer_bandwidth = 250;
    costs.memory_bandwidth = 2000;
  });
  const at::Tensor host = pinned_bytes(1000);
  const at::Tensor device = device_bytes(1000);
  const at::Tensor other = device_bytes(1000);
  const at::Tensor peer = at::empty({1000}, on_device(1).dtype(at::kByte));
  EXPECT_EQ(time_of([&] { device.copy_(host, true); }), nanoseconds(1000));
  EXPECT_EQ(time_of([&] { host.copy_(device, true); }), nanoseconds(2000));
  const TimelineSpan inside = task_of([&] { other.copy_(device); });
  EXPECT_EQ(inside.engine, Engine::kCompute);
  EXPECT_EQ(inside.end - inside.start, nanoseconds(1000)) << "read and written";
  const TimelineSpan between = task_of([&] { peer.copy_(device); });
  EXPECT_EQ(between.engine, Engine::kPeer);
  EXPECT_EQ(between.end - between.start, nanoseconds(4000));
}

TEST_F(TimelineCostsTest, ANumberThatIsReadIsAPageableCopyToTheHost) {
  const at::Tensor number = at::ones({1}, on_device().dtype(at::kDouble));
  const TimelineSpan task = task_of([&] { (void)number.item<double>(); });
  EXPECT_EQ(task.engine, Engine::kD2h);
  EXPECT_EQ(task.end - task.start, nanoseconds(80)) << "8 bytes at a tenth of a byte a nanosecond";
}

TEST_F(TimelineCostsTest, RecordingAndWaitingTakeTheHostsTime) {
  change_costs([](CostModel& costs) { costs.enqueue = microseconds(5); });
  c10::Event event(c10::DeviceType::PrivateUse1);
  EXPECT_EQ(host_time_of([&] { event.record(default_stream()); }), microseconds(5));
  EXPECT_EQ(host_time_of([&] { event.block(copies_); }), microseconds(5));
}

TEST_F(TimelineCostsTest, TimeDoesNotGoBack) {
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(default_stream());
  simulator_.advance_host(microseconds(70));
  event.synchronize();
  EXPECT_EQ(simulator_.timeline().host, microseconds(70));
  EXPECT_EQ(simulator_.timeline().host_waited, nanoseconds(0));
}

TEST_F(TimelineCostsTest, ADelayOfACallIsTheHosts) {
  FaultScript& faults = simulator_.faults();
  c10::Event event(c10::DeviceType::PrivateUse1);
  const auto delay = [&](FaultPoint point) {
    faults.delay(point, FaultWhen::nth(1), microseconds(7));
  };
  delay(FaultPoint::kRecord);
  EXPECT_EQ(host_time_of([&] { event.record(default_stream()); }), microseconds(7));
  delay(FaultPoint::kQuery);
  EXPECT_EQ(host_time_of([&] { (void)event.query(); }), microseconds(7) + CostModel{}.query);
  delay(FaultPoint::kSynchronize);
  EXPECT_EQ(host_time_of([&] { event.synchronize(); }), microseconds(7));
  delay(FaultPoint::kAllocate);
  EXPECT_EQ(host_time_of([&] { (void)device_bytes(64); }), microseconds(7));
  delay(FaultPoint::kRelease);
  EXPECT_EQ(host_time_of([&] { simulator_.empty_cache(); }), microseconds(7));
}

TEST_F(TimelineCostsTest, ADelayOfAWaitIsTheStreamsAndOneOfACopyItsOwn) {
  const at::Tensor host = pinned_bytes(50'000);
  const at::Tensor device = device_bytes(50'000);
  simulator_.faults().delay(FaultPoint::kCopy, FaultWhen::nth(1), microseconds(3));
  EXPECT_EQ(time_of([&] { device.copy_(host, true); }), microseconds(53));
  simulator_.faults().delay(FaultPoint::kWait, FaultWhen::nth(1), microseconds(7));
  order(default_stream(), copies_);
  EXPECT_EQ(task_of([&] { on(copies_, [&] { device.fill_(1); }); }).start, microseconds(60));
  order(copies_, default_stream());
}

TEST_F(TimelineCostsTest, DelaysOfOneCallAddUp) {
  const at::Tensor device = device_bytes(64);
  const at::Tensor image = at::ones({1, 1, 4, 4}, on_device());
  FaultScript& faults = simulator_.faults();
  faults.delay(FaultPoint::kKernel, FaultWhen::nth(1), microseconds(7));
  faults.delay(FaultPoint::kKernel, FaultWhen::nth(1), microseconds(5));
  EXPECT_EQ(time_of([&] { device.fill_(1); }), microseconds(112));
  faults.delay(FaultPoint::kKernel, FaultWhen::nth(1), microseconds(3));
  EXPECT_EQ(
      time_of([&] {
        (void)at::convolution(image, image, std::nullopt, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1);
      }),
      microseconds(103))
      << "the result is allocated before the task is queued";
}

TEST_F(TimelineCostsTest, ADelayGoesWithTheCallThatIsIgnoredOrFails) {
  FaultScript& faults = simulator_.faults();
  const at::Tensor device = device_bytes(64);
  c10::Event event(c10::DeviceType::PrivateUse1);
  faults.delay(FaultPoint::kRecord, FaultWhen::nth(1), microseconds(7));
  faults.fail(FaultPoint::kRecord, FaultWhen::nth(1), Fault::kIgnored);
  event.record(default_stream());
  EXPECT_EQ(time_of([&] { device.fill_(1); }), microseconds(100));
  simulator_.synchronize();
  faults.delay(FaultPoint::kKernel, FaultWhen::nth(1), microseconds(7));
  faults.fail(FaultPoint::kKernel, FaultWhen::nth(1), Fault::kLibTorch);
  EXPECT_THROW(device.fill_(1), c10::Error);
  EXPECT_EQ(host_time_of([&] { simulator_.synchronize(); }), nanoseconds(0));
}

TEST_F(TimelineCostsTest, GivingMemoryBackWaitsForThoseWhoUseIt) {
  at::Tensor device = device_bytes(64);
  order(default_stream(), copies_);
  on(copies_, [&] { device.fill_(1); });
  device.record_stream(copies_);
  device.reset();
  EXPECT_EQ(host_time_of([&] { simulator_.empty_cache(); }), microseconds(100));
  device = device_bytes(64);
  device.fill_(1);
  device.reset();
  EXPECT_EQ(host_time_of([&] { simulator_.empty_cache(); }), microseconds(100));
}

TEST_F(TimelineCostsTest, LookingForParkedMemoryTakesTheHostNoTime) {
  change_costs([](CostModel& costs) { costs.query = microseconds(30); });
  at::Tensor device = device_bytes(64);
  device.record_stream(copies_);
  device.reset();
  EXPECT_EQ(host_time_of([&] { (void)device_bytes(64); }), nanoseconds(0));
}

TEST_F(TimelineCostsTest, ADelayOfACopyBetweenDevicesIsTheCopysOwn) {
  const at::Tensor from = at::zeros({20'000}, on_device(0).dtype(at::kByte));
  at::Tensor to = at::zeros({20'000}, on_device(1).dtype(at::kByte));
  simulator_.synchronize(0);
  simulator_.synchronize(1);
  change_costs([](CostModel& costs) { costs.peer_bandwidth = 1000; });
  simulator_.faults().delay(FaultPoint::kCopy, FaultWhen::nth(1), microseconds(7));
  EXPECT_EQ(time_of([&] { to.copy_(from); }), microseconds(27));
  EXPECT_EQ(time_of([&] { to.copy_(from); }), microseconds(20));
  at::Tensor beside = at::zeros({20'000}, from.options());
  simulator_.faults().delay(FaultPoint::kCopy, FaultWhen::nth(1), microseconds(7));
  EXPECT_EQ(time_of([&] { beside.copy_(from); }), microseconds(107));
}

TEST_F(TimelineCostsTest, ADelayOfAWaitComesOnTopOfWhatTheStreamStillDoes) {
  at::Tensor device = at::ones({64}, on_device());  // Done at 100 us.
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(copies_);
  simulator_.faults().delay(FaultPoint::kWait, FaultWhen::nth(1), microseconds(30));
  event.block(default_stream());
  device.add_(1);
  simulator_.synchronize();
  EXPECT_EQ(simulator_.timeline().host, microseconds(230));
}

}  // namespace
}  // namespace offstage::testing
