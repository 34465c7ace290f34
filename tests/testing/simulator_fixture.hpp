// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <offstage/testing/simulator.hpp>

#include <ATen/Parallel.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <gtest/gtest.h>

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

  Simulator& simulator_ = Simulator::install();
  c10::impl::VirtualGuardImpl guard_{c10::DeviceType::PrivateUse1};
};

}  // namespace offstage::testing
