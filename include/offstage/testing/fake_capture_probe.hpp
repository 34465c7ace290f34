// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// A graph capture that a test says is going on.

#include <offstage/base/config.hpp>
#include <offstage/device/capture_probe.hpp>

#include <mutex>
#include <optional>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing {

/// Answers what the test set: no stream is capturing, one is, or all are.
class FakeCaptureProbe final : public CaptureProbe {
 public:
  void capture_nothing() {
    const std::lock_guard lock(mutex_);
    captures_all_ = false;
    stream_.reset();
  }
  void capture_everything() {
    const std::lock_guard lock(mutex_);
    captures_all_ = true;
  }
  void capture(const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    stream_ = stream;
  }

  [[nodiscard]] bool is_capturing(const c10::Stream& stream) const override {
    const std::lock_guard lock(mutex_);
    return captures_all_ || stream_ == stream;
  }

 private:
  mutable std::mutex mutex_;
  bool captures_all_ = false;
  std::optional<c10::Stream> stream_;
};

}  // namespace testing
OFFSTAGE_NAMESPACE_END
