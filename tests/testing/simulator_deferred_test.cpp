// SPDX-License-Identifier: Apache-2.0
// A program of its own: work runs only when somebody waits for it, and pinned memory comes in
// powers of two.
#include <offstage/testing/simulator.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <gtest/gtest.h>

namespace offstage::testing {
namespace {

class SimulatorDeferredTest : public ::testing::Test {
 protected:
  void SetUp() override { simulator_.reset(); }
  void TearDown() override { EXPECT_NO_THROW(simulator_.reset()); }

  static at::Tensor pinned(std::int64_t count) {
    at::Tensor host = at::empty({count}, at::TensorOptions().pinned_memory(true));
    host.fill_(1);
    return host;
  }

  Simulator& simulator_ =
      Simulator::install({.device_count = 1, .deferred = true, .host_rounding = true});
  c10::impl::VirtualGuardImpl guard_{simulator_.device().type()};
  c10::Stream stream_ = guard_.getDefaultStream(simulator_.device());
};

TEST_F(SimulatorDeferredTest, AnEarlyReadOfACopyToTheHostSeesPoisonEveryTime) {
  const at::Tensor device = at::full({16}, 3.0F, at::TensorOptions().device(simulator_.device()));
  at::Tensor host = pinned(16);
  for (int i = 0; i < 20; ++i) {
    host.copy_(device, /*non_blocking=*/true);
    EXPECT_TRUE(host.isnan().all().item<bool>()) << "read before the wait";
    stream_.synchronize();
    EXPECT_TRUE(host.equal(at::full({16}, 3.0F)));
  }
}

TEST_F(SimulatorDeferredTest, OnlyTheElementsOfATargetWithGapsArePoisoned) {
  const at::Tensor device = at::full({4, 2}, 3.0F, at::TensorOptions().device(simulator_.device()));
  const at::Tensor host = pinned(16).view({4, 4});
  host.narrow(1, 0, 2).copy_(device, /*non_blocking=*/true);
  EXPECT_TRUE(host.narrow(1, 0, 2).isnan().all().item<bool>());
  EXPECT_TRUE(host.narrow(1, 2, 2).equal(at::ones({4, 2})));
  stream_.synchronize();
  EXPECT_TRUE(host.narrow(1, 0, 2).equal(at::full({4, 2}, 3.0F)));
}

TEST_F(SimulatorDeferredTest, AWaitRunsWhatItNeedsOnOtherStreamsToo) {
  const c10::Stream copies = guard_.getNewStream(simulator_.device());
  const at::Tensor host = pinned(16);
  at::Tensor device;
  c10::Event ready(simulator_.device().type());
  {
    const c10::StreamGuard guard(copies);
    device = host.to(simulator_.device(), /*non_blocking=*/true);
    ready.record(copies);
  }
  ready.block(stream_);
  const at::Tensor sum = device.add(1);
  EXPECT_TRUE(sum.cpu().equal(at::full({16}, 2.0F)));
  device.record_stream(stream_);
}

TEST_F(SimulatorDeferredTest, AQueryThatSaysYesHasRunTheWork) {
  const at::Tensor device = at::full({16}, 3.0F, at::TensorOptions().device(simulator_.device()));
  at::Tensor host = pinned(16);
  host.copy_(device, /*non_blocking=*/true);
  int asked = 0;
  while (!stream_.query()) ++asked;
  EXPECT_GT(asked, 0);
  EXPECT_TRUE(host.equal(at::full({16}, 3.0F)));
}

TEST_F(SimulatorDeferredTest, PinnedMemoryIsRoundedUpToAPowerOfTwo) {
  const auto before = simulator_.pinned_bytes();
  const at::Tensor host =
      at::empty({5000}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  EXPECT_EQ(simulator_.pinned_bytes() - before, 8192);
}

TEST_F(SimulatorDeferredTest, ATargetThatAnEarlierCopyHasYetToReadKeepsItsValues) {
  const at::Tensor host = pinned(16);
  const at::Tensor device = host.to(simulator_.device(), /*non_blocking=*/true);
  device.add_(1);
  host.copy_(device, /*non_blocking=*/true);
  EXPECT_TRUE(host.equal(at::ones({16}))) << "the copy to the device runs only now";
  stream_.synchronize();
  EXPECT_TRUE(host.equal(at::full({16}, 2.0F)));
  EXPECT_TRUE(device.cpu().equal(at::full({16}, 2.0F)));
  host.copy_(device, /*non_blocking=*/true);
  EXPECT_TRUE(host.isnan().all().item<bool>()) << "nothing reads it any more";
  stream_.synchronize();
}

}  // namespace
}  // namespace offstage::testing
