// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace text_to_image {

/// A progress bar with the moving mean of the loss, one line every 50 steps.
class Progress {
 public:
  static constexpr std::int64_t kReportEvery = 50;

  Progress(const char* what, std::int64_t from, std::int64_t steps)
      : what_(what), from_(from), steps_(steps), start_(std::chrono::steady_clock::now()) {}

  void report(std::int64_t step, double loss) {
    sum_ += loss;
    ++count_;
    if ((step + 1) % kReportEvery != 0 && step + 1 != steps_) return;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    const double each = passed.count() / static_cast<double>(step + 1 - from_);
    constexpr int kWidth = 30;
    const int filled = static_cast<int>((step + 1) * kWidth / steps_);
    std::printf("%s [%.*s%.*s] %lld/%lld  loss %.5f  %.2f s/step  %.0f s left\n", what_, filled,
                "##############################", kWidth - filled, "..............................",
                static_cast<long long>(step + 1), static_cast<long long>(steps_),
                sum_ / static_cast<double>(count_), each,
                each * static_cast<double>(steps_ - step - 1));
    std::fflush(stdout);
    sum_ = 0;
    count_ = 0;
  }

 private:
  const char* what_;
  std::int64_t from_;
  std::int64_t steps_;
  std::chrono::steady_clock::time_point start_;
  double sum_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace text_to_image
