// SPDX-License-Identifier: Apache-2.0
// What a reset ends, and what it refuses to end.
#include "simulator_fixture.hpp"

#include <offstage/base/bytes.hpp>
#include <offstage/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <string>

namespace offstage::testing {
namespace {

using ::testing::HasSubstr;

class SimulatorResetTest : public SimulatorTest {
 protected:
  /// An event behind ten tasks of `stream` and a second of the host's time, recorded before a
  /// reset.
  c10::Event old_event_of(const c10::Stream& stream) const {
    c10::Event event(c10::DeviceType::PrivateUse1);
    on(stream, [&] {
      at::Tensor values = at::ones({4}, on_device());
      for (int i = 0; i < 10; ++i) values.add_(1);
    });
    simulator_.advance_host(std::chrono::seconds(1));
    event.record(stream);
    simulator_.reset();
    return event;
  }

  /// Uses on the default stream what `writer` writes, with `order` between. @returns the race.
  std::string race_after(const c10::Stream& writer, const std::function<void()>& order_them) const {
    at::Tensor values = at::empty({4}, on_device());
    order(default_stream(), writer);
    on(writer, [&] { values.fill_(1); });
    order_them();
    std::string race = "none";
    try {
      (void)values.add(1);
    } catch (const RaceError& error) {
      race = error.what();
    }
    order(writer, default_stream());
    return race;
  }

  std::string error_of_reset() const {
    try {
      simulator_.reset();
    } catch (const StateError& error) {
      return error.what();
    }
    return "none";
  }
};

TEST_F(SimulatorResetTest, AnEventFromBeforeOrdersNothingThatComesAfter) {
  const c10::Stream other = new_stream();
  const c10::Event old = old_event_of(other);
  EXPECT_THAT(race_after(other, [&] { old.block(default_stream()); }), HasSubstr("'aten::fill_'"));
  EXPECT_THAT(race_after(other, [&] { old.synchronize(); }), HasSubstr("'aten::fill_'"));
  EXPECT_THAT(race_after(other, [&] { EXPECT_TRUE(old.query()); }), HasSubstr("'aten::fill_'"));
}

TEST_F(SimulatorResetTest, AnEventFromBeforeIsReachedWhenTimeStarts) {
  const c10::Stream other = new_stream();
  const c10::Event old = old_event_of(other);
  old.synchronize();
  EXPECT_EQ(simulator_.timeline().host, std::chrono::nanoseconds(0));
  old.block(default_stream());
  default_stream().synchronize();
  EXPECT_EQ(simulator_.timeline().host, simulator_.costs().enqueue);
}

TEST_F(SimulatorResetTest, AHoldThatIsAliveIsNamedAndNothingIsReset) {
  simulator_.set_capacity(0, 10 * kMiB);
  const c10::Stream stream = new_stream(1);
  StreamHold hold = simulator_.hold(stream);
  StreamHold second = simulator_.hold(default_stream());
  EXPECT_THAT(error_of_reset(), AllOf(HasSubstr("sim:1 stream " + std::to_string(stream.id())),
                                      HasSubstr("sim:0 default stream")));
  EXPECT_EQ(simulator_.memory().total, 10 * kMiB);
  second.release();
  EXPECT_THAT(error_of_reset(), Not(HasSubstr("sim:0")));
  hold.release();
  EXPECT_EQ(error_of_reset(), "none");
}

TEST_F(SimulatorResetTest, AStreamFromBeforeIsNotTheNextThatIsHandedOut) {
  const c10::Stream copies = new_stream();
  simulator_.reset();
  EXPECT_NE(new_stream(), copies) << "two streams in one would hide their races";
}

}  // namespace
}  // namespace offstage::testing
