// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Failures of the simulated accelerator, on demand.

#include <offstage/base/config.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing {

/// A kind of call into the device.
enum class FaultPoint : std::uint8_t {
  kAllocate,     ///< A block of device memory.
  kCopy,         ///< A copy to, from or between devices.
  kKernel,       ///< Any other operation.
  kRecord,       ///< Recording an event.
  kWait,         ///< Making a stream wait for an event.
  kQuery,        ///< Asking a stream or an event whether it is done.
  kSynchronize,  ///< Waiting on the host for a stream, an event or a device.
  kPin,          ///< Pinned memory from LibTorch's host allocator.
  kRegister,     ///< Pinning existing host memory.
  kUnregister,   ///< Undoing that.
  kStatistics,   ///< Reading the allocator's or the device's figures.
  kRelease,      ///< Giving cached memory back (`emptyCache`).
};
inline constexpr std::size_t kFaultPoints = 12;

/// The stable spelling: "allocate", "copy", ...
[[nodiscard]] std::string_view to_string(FaultPoint point) noexcept;

/// What a call that is to fail does.
enum class Fault : std::uint8_t {
  kOutOfMemory,   ///< Throws `c10::OutOfMemoryError`.
  kAccelerator,   ///< Throws `c10::AcceleratorError`, as failed driver calls do.
  kLibTorch,      ///< Throws a plain `c10::Error`.
  kStandard,      ///< Throws `std::runtime_error`.
  kForeign,       ///< Throws an `int`.
  kAsynchronous,  ///< Succeeds; the next call that can fail throws `c10::AcceleratorError` instead.
  kDeath,         ///< Throws `c10::AcceleratorError`, and so does every later call that can fail.
  kIgnored,       ///< Does nothing and says that it did: for kRecord, kWait and kSynchronize only.
};

/// Which calls of a kind are meant, counted from the moment that the rule was made.
struct FaultWhen {
  std::int64_t first = 1;  ///< The first call that is meant, from 1 on.
  std::int64_t every = 0;  ///< 0: only that one; k: every k-th from there on.

  [[nodiscard]] static constexpr FaultWhen nth(std::int64_t n) noexcept { return {n, 0}; }
  [[nodiscard]] static constexpr FaultWhen every_nth(std::int64_t n) noexcept { return {n, n}; }
  [[nodiscard]] static constexpr FaultWhen from(std::int64_t n) noexcept { return {n, 1}; }

  [[nodiscard]] constexpr bool meets(std::int64_t call) const noexcept {
    return call >= first && (call == first || (every > 0 && (call - first) % every == 0));
  }
};

/// A list of rules "the n-th call of this kind fails like that". Of several rules that meet a call
/// the first that was made counts.
///
/// @par Threads
/// All members may be called concurrently.
class FaultScript {
 public:
  /// Makes a rule, for all devices.
  /// @throws InvalidArgument if `first` is not at least 1 or `every` is negative, or for a point
  ///         that cannot be ignored.
  void fail(FaultPoint point, FaultWhen when, Fault fault);

  /// Adds virtual time to the calls that `when` means: to the task that they queue, or to the host.
  void delay(FaultPoint point, FaultWhen when, std::chrono::nanoseconds duration);

  /// Forgets all rules, a device's death and errors that have not surfaced. Counts go on.
  void clear();

  /// Calls of a kind since the simulator was installed.
  [[nodiscard]] std::int64_t calls(FaultPoint point) const;

  /// Calls that rules were applied to.
  [[nodiscard]] std::int64_t hits() const;

  /// For the simulator: counts a call and throws what the rules say.
  /// @returns false if the call is to be ignored.
  bool enter(FaultPoint point);

  /// For the simulator: the virtual time to add to the call that was entered last by this thread.
  [[nodiscard]] static std::chrono::nanoseconds take_delay() noexcept;

 private:
  struct Rule {
    FaultPoint point;
    FaultWhen when;
    std::int64_t calls_before;
    std::optional<Fault> fault;
    std::chrono::nanoseconds delay;
  };

  mutable std::mutex mutex_;
  std::vector<Rule> rules_;
  std::array<std::int64_t, kFaultPoints> calls_{};
  std::int64_t hits_ = 0;
  bool dead_ = false;
  bool error_pending_ = false;
};

}  // namespace testing
OFFSTAGE_NAMESPACE_END
