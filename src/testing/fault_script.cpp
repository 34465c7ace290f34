// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/testing/fault_script.hpp>

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing {
namespace {

thread_local std::chrono::nanoseconds pending_delay{0};

// CUDA's numbers for the same: cudaErrorIllegalAddress and cudaErrorLaunchFailure.
constexpr std::int32_t kIllegalAddress = 700;
constexpr std::int32_t kLaunchFailure = 719;

[[noreturn]] void throw_accelerator_error(std::int32_t code, const std::string& text) {
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, code,
                              "simulated accelerator: " + text);
}

[[noreturn]] void throw_fault(Fault fault, const std::string& call) {
  const std::string text = call + " failed, as the fault script says";
  switch (fault) {
    case Fault::kOutOfMemory:
      TORCH_CHECK_WITH(OutOfMemoryError, false, "simulated accelerator: out of memory: ", text);
    case Fault::kLibTorch:
      TORCH_CHECK(false, "simulated accelerator: ", text);
    case Fault::kStandard:
      throw std::runtime_error("simulated accelerator: " + text);
    case Fault::kForeign:
      throw 42;
    default:
      throw_accelerator_error(kLaunchFailure, text);
  }
}

}  // namespace

std::string_view to_string(FaultPoint point) noexcept {
  switch (point) {
    case FaultPoint::kAllocate:
      return "allocate";
    case FaultPoint::kCopy:
      return "copy";
    case FaultPoint::kKernel:
      return "kernel";
    case FaultPoint::kRecord:
      return "record";
    case FaultPoint::kWait:
      return "wait";
    case FaultPoint::kQuery:
      return "query";
    case FaultPoint::kSynchronize:
      return "synchronize";
    case FaultPoint::kPin:
      return "pin";
    case FaultPoint::kRegister:
      return "register";
    case FaultPoint::kUnregister:
      return "unregister";
    case FaultPoint::kStatistics:
      return "statistics";
    case FaultPoint::kRelease:
      return "release";
  }
  return "unknown";
}

void FaultScript::fail(FaultPoint point, FaultWhen when, Fault fault) {
  if (when.first < 1 || when.every < 0) {
    throw InvalidArgument("fault script: calls are counted from 1 on, got first = " +
                          std::to_string(when.first) + ", every = " + std::to_string(when.every));
  }
  if (fault == Fault::kIgnored && point != FaultPoint::kRecord && point != FaultPoint::kWait &&
      point != FaultPoint::kSynchronize) {
    throw InvalidArgument(
        "fault script: only waits, records and synchronisations can be ignored, not '" +
        std::string(to_string(point)) + "'");
  }
  const std::lock_guard lock(mutex_);
  rules_.push_back({point, when, calls_[static_cast<std::size_t>(point)], fault, {}});
}

void FaultScript::delay(FaultPoint point, FaultWhen when, std::chrono::nanoseconds duration) {
  if (when.first < 1 || when.every < 0 || duration < std::chrono::nanoseconds::zero()) {
    throw InvalidArgument(
        "fault script: a delay must not be negative, and calls are counted from "
        "1 on");
  }
  const std::lock_guard lock(mutex_);
  rules_.push_back({point, when, calls_[static_cast<std::size_t>(point)], std::nullopt, duration});
}

void FaultScript::clear() {
  const std::lock_guard lock(mutex_);
  rules_.clear();
  dead_ = false;
  error_pending_ = false;
}

std::int64_t FaultScript::calls(FaultPoint point) const {
  const std::lock_guard lock(mutex_);
  return calls_[static_cast<std::size_t>(point)];
}

std::int64_t FaultScript::hits() const {
  const std::lock_guard lock(mutex_);
  return hits_;
}

bool FaultScript::enter(FaultPoint point) {
  const std::string call = "'" + std::string(to_string(point)) + "'";
  pending_delay = {};  // One that no task has taken is lost with its call.
  std::optional<Fault> fault;
  {
    const std::lock_guard lock(mutex_);
    const std::int64_t number = ++calls_[static_cast<std::size_t>(point)];
    if (dead_) throw_accelerator_error(kLaunchFailure, call + ": the device is dead");
    if (std::exchange(error_pending_, false)) {
      throw_accelerator_error(kIllegalAddress, "an earlier task failed; found by " + call);
    }
    bool hit = false;
    for (const Rule& rule : rules_) {
      if (rule.point != point || !rule.when.meets(number - rule.calls_before)) continue;
      hit = true;
      if (!fault) fault = rule.fault;
      pending_delay += rule.delay;
    }
    if (hit) ++hits_;
    if (fault == Fault::kAsynchronous) error_pending_ = true;
    if (fault == Fault::kDeath) dead_ = true;
  }
  if (!fault || fault == Fault::kAsynchronous) return true;
  if (fault == Fault::kIgnored) return false;
  pending_delay = {};
  throw_fault(*fault, call);
}

std::chrono::nanoseconds FaultScript::take_delay() noexcept {
  return std::exchange(pending_delay, std::chrono::nanoseconds::zero());
}

}  // namespace testing
OFFSTAGE_NAMESPACE_END
