// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <pthread.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace offstage {

/// Here a cancelled thread ends, as it would in a call of a driver.
inline void cancellation_point() {
#if defined(__SANITIZE_ADDRESS__)
  // The sanitizer does not see a forced unwinding, and would take the frames that it leaves behind
  // for live ones when the thread's exit reuses their addresses.
  __asan_handle_no_return();
#endif
  ::pthread_testcancel();
}

/// Runs `body` in a thread that is cancelled at the next cancellation point, and checks that the
/// cancellation got through.
template <typename Body>
void run_in_cancelled_thread(Body body) {
  const auto start = [](void* argument) -> void* {
    ::pthread_cancel(::pthread_self());
    (*static_cast<Body*>(argument))();
    cancellation_point();
    return nullptr;
  };
  pthread_t thread{};
  void* result = nullptr;
  ASSERT_EQ(::pthread_create(&thread, nullptr, start, &body), 0);
  ASSERT_EQ(::pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED) << "the cancellation was lost";
}

}  // namespace offstage
