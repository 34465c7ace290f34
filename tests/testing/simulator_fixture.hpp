// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <offstage/testing/simulator.hpp>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <gtest/gtest.h>

#include <functional>

namespace offstage::testing {

/// Two simulated devices, empty at the start of every test and at its end.
class SimulatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    at::set_num_threads(1);  // The barriers of OpenMP are invisible to the thread sanitizer.
#endif
    simulator_.reset();
  }
  void TearDown() override {
    EXPECT_NO_THROW(simulator_.reset());
  }

  c10::Stream default_stream(int index = 0) const {
    return guard_.getDefaultStream(simulator_.device(index));
  }
  c10::Stream new_stream(int index = 0) const {
    return guard_.getNewStream(simulator_.device(index));
  }

  at::TensorOptions on_device(int index = 0) const {
    return at::TensorOptions().device(simulator_.device(index));
  }

  static at::Tensor pinned(const at::Tensor& values) {
    at::Tensor host = at::empty(values.sizes(), values.options().pinned_memory(true));
    host.copy_(values);
    return host;
  }

  /// Queues `body` with `stream` as the current one.
  static void on(const c10::Stream& stream, const std::function<void()>& body) {
    const c10::StreamGuard guard(stream);
    body();
  }

  /// What `second` gets from now on waits for what `first` has.
  static void order(const c10::Stream& first, const c10::Stream& second) {
    c10::Event event(c10::DeviceType::PrivateUse1);
    event.record(first);
    event.block(second);
  }

  Simulator& simulator_ = Simulator::install();
  c10::impl::VirtualGuardImpl guard_{c10::DeviceType::PrivateUse1};
};

}  // namespace offstage::testing
