// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// A one-shot gate that threads can wait at.

#include <offstage/base/config.hpp>

#include <condition_variable>
#include <mutex>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// Closed at first, then open for ever.
class Latch {
 public:
  void open() noexcept {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

  [[nodiscard]] bool is_open() const {
    const std::lock_guard lock(mutex_);
    return open_;
  }

  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
