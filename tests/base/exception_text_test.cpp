// SPDX-License-Identifier: Apache-2.0
#include "cancelled_thread.hpp"

#include <offstage/base/exception_text.hpp>

#include <c10/util/Exception.h>

#include <gtest/gtest.h>

#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>

namespace offstage {
namespace {

template <typename Thrown>
std::string text_of(const Thrown& thrown) {
  try {
    throw thrown;
  } catch (...) {
    return current_exception_text();
  }
}

TEST(ExceptionTextTest, SaysWhatAStandardExceptionSays) {
  EXPECT_EQ(text_of(std::runtime_error("no such device")), "no such device");
}

TEST(ExceptionTextTest, AnExceptionWithoutATextHasNone) {
  struct Silent : std::exception {
    [[nodiscard]] const char* what() const noexcept override { return nullptr; }
  };
  EXPECT_EQ(text_of(Silent()), "");
}

TEST(ExceptionTextTest, LeavesOutTheBacktraceOfLibTorchsErrors) {
  std::string text;
  try {
    TORCH_CHECK(false, "allocator is gone");
  } catch (...) {
    text = current_exception_text();
  }
  EXPECT_EQ(text, "allocator is gone");
}

TEST(ExceptionTextTest, HasWordsForWhatIsNoStandardException) {
  EXPECT_EQ(text_of(std::string("a string")), "a string");
  EXPECT_EQ(text_of(static_cast<const char*>("a literal")), "a literal");
  EXPECT_EQ(text_of(42), "an exception that is not a std::exception");
}

TEST(ExceptionTextTest, TellsAForcedUnwindingFromAnException) {
  bool exception_is_forced = true;
  try {
    throw 42;
  } catch (...) {
    exception_is_forced = is_forced_unwinding();
  }
  EXPECT_FALSE(exception_is_forced);
  bool cancellation_is_forced = false;
  run_in_cancelled_thread([&] {
    try {
      cancellation_point();
    } catch (...) {
      cancellation_is_forced = is_forced_unwinding();
      throw;
    }
  });
  EXPECT_TRUE(cancellation_is_forced);
}

TEST(CancellationDeferralTest, DefersForItsLifetimeAndRestoresWhatWas) {
  int inside = -1;
  {
    const CancellationDeferral deferral;
    const CancellationDeferral nested;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &inside);
  }
  int after = -1;
  ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &after);
  EXPECT_EQ(inside, PTHREAD_CANCEL_DISABLE);
  EXPECT_EQ(after, PTHREAD_CANCEL_ENABLE);
}

TEST(CancellationDeferralTest, IsActiveForItsLifetimeInItsThreadAlone) {
  EXPECT_FALSE(CancellationDeferral::is_active());
  {
    const CancellationDeferral deferral;
    { const CancellationDeferral nested; }
    EXPECT_TRUE(CancellationDeferral::is_active());
    bool elsewhere = true;
    std::thread([&] { elsewhere = CancellationDeferral::is_active(); }).join();
    EXPECT_FALSE(elsewhere);
  }
  EXPECT_FALSE(CancellationDeferral::is_active());
}

}  // namespace
}  // namespace offstage
