// SPDX-License-Identifier: Apache-2.0
// The queue of a stream alone.
#include "testing/stream_queue.hpp"

#include <offstage/base/error.hpp>

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>

namespace offstage::testing::detail {
namespace {

TEST(StreamQueueTest, WhatATaskHoldsDiesBeforeItCountsAsDone) {
  ErrorSlot errors;
  StreamQueue queue(errors, 1, /*deferred=*/false);
  StreamMarker done;
  bool reached = true;
  std::promise<void> marked;
  queue.enqueue([start = marked.get_future().share()] { start.wait(); });
  {
    const std::shared_ptr<void> held(&queue, [&](void*) { reached = done.reached(); });
    queue.enqueue([held] {});
  }
  done = queue.record();
  marked.set_value();
  done.wait();
  queue.shut_down();
  EXPECT_FALSE(reached);
}

TEST(StreamQueueTest, TheFirstErrorIsKeptUntilItIsThrown) {
  ErrorSlot errors;
  StreamQueue queue(errors, 1, /*deferred=*/false);
  queue.enqueue([] { throw std::runtime_error("first"); });
  queue.enqueue([] { throw std::logic_error("second"); });
  queue.drain();
  queue.shut_down();
  EXPECT_THROW(errors.rethrow(), std::runtime_error);
  EXPECT_NO_THROW(errors.rethrow());
}

TEST(StreamQueueTest, WorkIsRefusedAfterTheEnd) {
  ErrorSlot errors;
  StreamQueue queue(errors, 1, /*deferred=*/false);
  queue.shut_down();
  EXPECT_THROW(queue.enqueue([] {}), StateError);
}

TEST(StreamQueueTest, AMarkerThatWasNeverRecordedIsReached) {
  EXPECT_TRUE(StreamMarker().reached());
  EXPECT_NO_THROW(StreamMarker().wait());
}

}  // namespace
}  // namespace offstage::testing::detail
