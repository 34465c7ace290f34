// SPDX-License-Identifier: Apache-2.0
#include <offstage/testing/fake_capture_probe.hpp>

#include <gtest/gtest.h>

namespace offstage::testing {
namespace {

c10::Stream stream(c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCPU), id);
}

TEST(FakeCaptureProbe, CapturesNothingAtFirstAndWhenToldSo) {
  FakeCaptureProbe probe;
  EXPECT_FALSE(probe.is_capturing(stream(0)));
  probe.capture_everything();
  probe.capture(stream(0));
  probe.capture_nothing();
  EXPECT_FALSE(probe.is_capturing(stream(0)));
}

TEST(FakeCaptureProbe, CapturesTheStreamItWasGiven) {
  FakeCaptureProbe probe;
  probe.capture(stream(1));
  EXPECT_TRUE(probe.is_capturing(stream(1)));
  EXPECT_FALSE(probe.is_capturing(stream(2)));
}

TEST(FakeCaptureProbe, CapturesEverything) {
  FakeCaptureProbe probe;
  probe.capture_everything();
  EXPECT_TRUE(probe.is_capturing(stream(2)));
}

}  // namespace
}  // namespace offstage::testing
