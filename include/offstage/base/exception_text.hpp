// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Words for an exception of any type, and cancellation kept out of clean-up code.

#include <offstage/base/config.hpp>

#include <c10/util/Exception.h>

#include <exception>
#include <pthread.h>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN

/// What the exception being handled says: LibTorch's errors without their backtrace, a fixed text
/// for what does not derive from std::exception. Never throws: without memory the text is short.
/// @pre Called in a handler, and `is_forced_unwinding()` is false.
[[nodiscard]] inline std::string current_exception_text() noexcept {
  try {
    try {
      throw;
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    } catch (const std::exception& error) {
      return error.what() == nullptr ? "" : error.what();
    } catch (const std::string& text) {
      return text;
    } catch (const char* text) {
      return text == nullptr ? "" : text;
    } catch (...) {
      return "an exception that is not a std::exception";
    }
  } catch (...) {
    return "out of memory";
  }
}

/// True if what is being handled is no exception but the unwinding of a thread that is cancelled or
/// has called pthread_exit (or an exception of another language's runtime): nobody has failed, and
/// the handler must rethrow. A handler for `abi::__forced_unwind` would tell as well, but binds a
/// null reference, which the undefined-behaviour sanitizer reports.
/// @pre Called in a handler.
[[nodiscard]] inline bool is_forced_unwinding() noexcept {
  return std::current_exception() == nullptr;
}

/// Defers cancellation of the calling thread (`pthread_cancel`) for its lifetime. Clean-up that
/// must finish, and functions that must not throw, hold one: a cancellation acted upon inside a
/// noexcept function ends the program.
class CancellationDeferral {
 public:
  CancellationDeferral() noexcept {
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &previous_);
    ++depth();
  }
  ~CancellationDeferral() {
    --depth();
    ::pthread_setcancelstate(previous_, nullptr);
  }
  CancellationDeferral(const CancellationDeferral&) = delete;
  CancellationDeferral& operator=(const CancellationDeferral&) = delete;
  CancellationDeferral(CancellationDeferral&&) = delete;
  CancellationDeferral& operator=(CancellationDeferral&&) = delete;

  /// True while the calling thread holds one.
  [[nodiscard]] static bool is_active() noexcept { return depth() > 0; }

 private:
  [[nodiscard]] static int& depth() noexcept {
    static thread_local int depth = 0;
    return depth;
  }

  int previous_ = PTHREAD_CANCEL_ENABLE;
};

OFFSTAGE_NAMESPACE_END
