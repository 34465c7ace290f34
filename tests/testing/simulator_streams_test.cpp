// SPDX-License-Identifier: Apache-2.0
#include "simulator_fixture.hpp"

#include <offstage/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_copy_from_and_resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>

#include <set>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace offstage::testing {
namespace {

class SimulatorStreamsTest : public SimulatorTest {};

TEST_F(SimulatorStreamsTest, HeldStreamLetsLinearAndPinnedCopiesReturn) {
  const at::Tensor x = pinned(at::arange(6).to(at::kFloat).view({2, 3}));
  const at::Tensor w = pinned(at::ones({4, 3}));
  at::Tensor result = pinned(at::zeros({2, 4}));
  const SimulatorCounters before = simulator_.counters();
  StreamHold hold = simulator_.hold(default_stream());

  const at::Tensor device_x = x.to(simulator_.device(), /*non_blocking=*/true);
  const at::Tensor device_w = w.to(simulator_.device(), /*non_blocking=*/true);
  const at::Tensor y = at::linear(device_x, device_w);
  result.copy_(y, /*non_blocking=*/true);

  EXPECT_FALSE(default_stream().query());
  EXPECT_TRUE(result.equal(at::zeros({2, 4})));
  hold.release();
  default_stream().synchronize();
  EXPECT_TRUE(result.equal(at::linear(x, w)));

  const SimulatorCounters used = simulator_.counters() - before;
  EXPECT_EQ(used.copies_h2d, 2);
  EXPECT_EQ(used.bytes_h2d, (6 + 12) * 4);
  EXPECT_EQ(used.copies_d2h, 1);
  EXPECT_EQ(used.bytes_d2h, 8 * 4);
  EXPECT_EQ(used.kernel_waits, 0);
  EXPECT_EQ(used.host_waits, 1) << "the one of this test";
}

TEST_F(SimulatorStreamsTest, PageableAndBlockingCopiesWait) {
  const at::Tensor pageable = at::ones({4});
  const at::Tensor fixed = pinned(at::ones({4}));
  const SimulatorCounters before = simulator_.counters();
  at::Tensor device = pageable.to(simulator_.device(), /*non_blocking=*/true);
  device.copy_(fixed);
  (void)device.to(at::kCPU);
  EXPECT_EQ((simulator_.counters() - before).host_waits, 3);
}

TEST_F(SimulatorStreamsTest, AStreamRunsWhatWaitsForAnEventOnlyAfterIt) {
  at::Tensor x = at::zeros({1}, on_device());
  const c10::Stream copies = new_stream();
  c10::Event event(c10::DeviceType::PrivateUse1);
  StreamHold hold = simulator_.hold(default_stream());
  x.fill_(5);
  event.record(default_stream());
  event.block(copies);
  at::Tensor y;
  on(copies, [&] { y = x.add(1); });
  EXPECT_FALSE(event.query());
  EXPECT_FALSE(copies.query());
  hold.release();
  copies.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_EQ(y.item<float>(), 6);
}

TEST_F(SimulatorStreamsTest, RecordingAgainDoesNotFreeAnEarlierWaiter) {
  const c10::Stream first = new_stream();
  const c10::Stream second = new_stream();
  c10::Event event(c10::DeviceType::PrivateUse1);
  StreamHold hold = simulator_.hold(first);
  event.record(first);
  event.block(default_stream());
  event.record(second);  // Nothing is queued there: this version is reached at once.
  EXPECT_TRUE(event.query());
  at::Tensor x = at::ones({1}, on_device());
  EXPECT_FALSE(default_stream().query());
  hold.release();
  default_stream().synchronize();
  EXPECT_EQ(x.item<float>(), 1);
}

TEST_F(SimulatorStreamsTest, RecordingAgainDoesNotHoldAnEarlierWaiter) {
  const c10::Stream other = new_stream();
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(other);
  event.block(default_stream());
  StreamHold hold = simulator_.hold(other);
  event.record(other);
  EXPECT_FALSE(event.query());
  default_stream().synchronize();
}

TEST_F(SimulatorStreamsTest, EventsThatWereNeverRecordedHoldNobody) {
  const c10::Event event(c10::DeviceType::PrivateUse1);
  event.block(default_stream());
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST_F(SimulatorStreamsTest, EventsWorkAcrossDevices) {
  c10::Event event(c10::DeviceType::PrivateUse1);
  StreamHold hold = simulator_.hold(default_stream(0));
  event.record(default_stream(0));
  event.block(default_stream(1));
  at::Tensor x = at::ones({1}, on_device(1));
  EXPECT_FALSE(default_stream(1).query());
  EXPECT_THROW(event.record(default_stream(1)), c10::Error);
  hold.release();
  EXPECT_EQ(x.item<float>(), 1);
}

TEST_F(SimulatorStreamsTest, CopiesBetweenDevicesAreInOrderWithBoth) {
  at::Tensor from = at::ones({3}, on_device(0));
  at::Tensor to = at::zeros({3}, on_device(1));
  const SimulatorCounters before = simulator_.counters(0);
  StreamHold hold = simulator_.hold(default_stream(0));
  from.fill_(2);
  to.copy_(from, /*non_blocking=*/true);
  const at::Tensor sum = to.add(1);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(default_stream(1).query()) << "it waits for the copy, which waits for the source";
    std::this_thread::yield();
  }
  hold.release();
  EXPECT_TRUE(sum.to(at::kCPU).equal(at::full({3}, 3.0F)));
  EXPECT_EQ((simulator_.counters(0) - before).copies_d2d, 1);
  EXPECT_EQ((simulator_.counters(0) - before).bytes_d2d, 12);
}

TEST_F(SimulatorStreamsTest, StreamsAreHandedOutInTurn) {
  std::set<c10::StreamId> ids;
  for (int i = 0; i < 32; ++i) ids.insert(new_stream().id());
  EXPECT_EQ(ids.size(), 32);
  EXPECT_EQ(ids.count(default_stream().id()), 0);
  EXPECT_EQ(ids.count(new_stream().id()), 1);
  EXPECT_EQ(ids.count(guard_.getStreamFromGlobalPool(simulator_.device()).id()), 1);
}

TEST_F(SimulatorStreamsTest, CurrentDeviceAndStreamBelongToTheThread) {
  const c10::Stream mine = new_stream(1);
  const c10::StreamGuard guard(mine);
  EXPECT_EQ(guard_.getDevice(), simulator_.device(1));
  EXPECT_EQ(guard_.getStream(simulator_.device(1)), mine);
  EXPECT_EQ(guard_.getStream(simulator_.device(0)), default_stream(0));
  std::thread([&] {
    EXPECT_EQ(guard_.getDevice(), simulator_.device(0));
    EXPECT_EQ(guard_.getStream(simulator_.device(1)), default_stream(1));
  }).join();
}

TEST_F(SimulatorStreamsTest, ThreadsWorkSideBySide) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      const c10::StreamGuard guard(new_stream(i % 2));
      const at::Tensor host = pinned(at::full({64}, i));
      for (int round = 0; round < 20; ++round) {
        const at::Tensor x = host.to(simulator_.device(i % 2), /*non_blocking=*/true);
        const at::Tensor y = x.add(round).mul(x);
        EXPECT_TRUE(y.to(at::kCPU).equal(at::full({64}, (i + round) * i)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(SimulatorStreamsTest, DevicesKeepApart) {
  const SimulatorCounters before = simulator_.counters(0);
  StreamHold hold = simulator_.hold(default_stream(0));
  const at::Tensor x = at::ones({4}, on_device(1));
  EXPECT_EQ(x.device(), simulator_.device(1));
  EXPECT_EQ(x.add(x).sum().item<float>(), 8);
  EXPECT_EQ(simulator_.counters(0) - before, SimulatorCounters{});
  EXPECT_GT(simulator_.memory(1).allocated, 0);
  EXPECT_EQ(simulator_.memory(0).allocated, 0);
}

TEST_F(SimulatorStreamsTest, CountsEventsAndWaitsOfTheProgram) {
  at::Tensor x = at::zeros({2}, on_device());
  const SimulatorCounters before = simulator_.counters();
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(default_stream());
  event.block(new_stream());
  event.synchronize();
  default_stream().synchronize();
  guard_.synchronizeDevice(0);
  (void)event.query();
  x.add_(1);
  (void)x[0].item<float>();
  simulator_.synchronize();
  SimulatorCounters expected;
  expected.events_recorded = 1;
  expected.stream_waits = 1;
  expected.host_waits = 3;
  expected.kernels = 1;
  expected.kernel_waits = 1;
  EXPECT_EQ(simulator_.counters() - before, expected);
}

TEST_F(SimulatorStreamsTest, ErrorsOfQueuedWorkAreThrownByTheNextSynchronisation) {
  const at::Tensor x = at::ones({2, 2}, on_device());
  const at::Tensor index = at::full({1, 1}, 9, on_device().dtype(at::kLong));
  const at::Tensor gathered = x.gather(0, index);  // The shape is right, the index is not.
  EXPECT_THROW(default_stream().synchronize(), c10::Error);
  EXPECT_NO_THROW(default_stream().synchronize());
  const at::Tensor again = x.gather(0, index);
  EXPECT_THROW(simulator_.synchronize(), c10::Error);
}

TEST_F(SimulatorStreamsTest, EveryWaitOfTheProgramThrowsWhatWasQueuedBefore) {
  const at::Tensor x = at::ones({2, 2}, on_device());
  const at::Tensor index = at::full({1, 1}, 9, on_device().dtype(at::kLong));
  (void)x.gather(0, index);
  EXPECT_THROW((void)x.cpu(), c10::Error);
  (void)x.gather(0, index);
  EXPECT_THROW((void)x[0][0].item<float>(), c10::Error);
  (void)x.gather(0, index);
  EXPECT_THROW((void)x.nonzero(), c10::Error);
  (void)x.gather(0, index);
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(default_stream());
  EXPECT_THROW(event.synchronize(), c10::Error);
}

TEST_F(SimulatorStreamsTest, AHoldThatIsDestroyedOrReplacedIsReleased) {
  { const StreamHold hold = simulator_.hold(default_stream()); }
  default_stream().synchronize();
  StreamHold hold = simulator_.hold(default_stream());
  hold = simulator_.hold(new_stream());
  default_stream().synchronize();
}

TEST_F(SimulatorStreamsTest, UnknownStreamsAndDevicesAreRefused) {
  EXPECT_THROW((void)simulator_.device(2), InvalidArgument);
  EXPECT_THROW((void)simulator_.device(-1), InvalidArgument);
  EXPECT_THROW(guard_.setDevice(c10::Device(c10::DeviceType::PrivateUse1, 2)), c10::Error);
  EXPECT_THROW((void)at::empty({1}, at::TensorOptions().device(c10::Device("sim:2"))), c10::Error);
  const c10::Stream none(c10::Stream::UNSAFE, simulator_.device(), 99);
  EXPECT_THROW((void)none.query(), c10::Error);
}

TEST_F(SimulatorStreamsTest, AForkedChildIsToldThatItCannotUseTheDevice) {
  at::Tensor x = at::ones({1}, on_device());
  simulator_.synchronize();
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      simulator_.synchronize();
    } catch (const StateError&) {
      try {
        x.fill_(2);
      } catch (const StateError&) {
        code = 42;
      }
    }
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

TEST_F(SimulatorStreamsTest, ACopyOfNothingIsNoCopy) {
  const at::Tensor device = at::empty({0, 3}, on_device());
  const auto before = simulator_.counters();
  device.copy_(at::empty({0, 3}));
  (void)device.cpu();
  EXPECT_EQ(simulator_.counters() - before, SimulatorCounters{});
}

TEST_F(SimulatorStreamsTest, ACopyThatResizesGivesItsTargetTheShape) {
  const at::Tensor device = at::empty({0}, on_device());
  at::_copy_from_and_resize(at::ones({2, 3}), device);
  EXPECT_EQ(device.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_TRUE(device.cpu().equal(at::ones({2, 3})));
}

TEST_F(SimulatorStreamsTest, ReadingANumberIsACopyThatCanFail) {
  const at::Tensor device = at::ones({1}, on_device());
  simulator_.faults().fail(FaultPoint::kCopy, FaultWhen::nth(1), Fault::kAccelerator);
  EXPECT_ANY_THROW((void)device.item<float>());
  EXPECT_EQ(device.item<float>(), 1);
}

}  // namespace
}  // namespace offstage::testing
