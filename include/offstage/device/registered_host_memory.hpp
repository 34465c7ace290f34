// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Host memory of exact size that is pinned by registering it.

#include <offstage/base/bytes.hpp>
#include <offstage/base/config.hpp>
#include <offstage/device/host_memory.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN

/// What a `RegisteredHostMemory` is made from.
struct RegisteredHostMemoryOptions {
  /// For reports.
  std::string name = "registered";
  /// Pins a range that starts on a page. Throws if it is refused. Must be set.
  std::function<void(void* data, std::int64_t bytes)> pin;
  /// Undoes it; gets the same range. Must be set.
  std::function<void(void* data, std::int64_t bytes)> unpin;
  /// Upper bound in bytes of one registration, but for a single chunk that is larger. Registering
  /// takes a driver long, and a copy must not cross two registrations: so masters are registered in
  /// slices of whole chunks.
  std::int64_t slice_bytes_max = kGiB;
  /// True if what is pinned counts towards RLIMIT_MEMLOCK.
  bool bound_by_memlock = false;
};

/// Anonymous mappings of exactly the size asked for, pinned by a function: the provider for devices
/// whose driver can pin memory that exists.
class RegisteredHostMemory final : public HostMemory {
 public:
  /// @throws InvalidArgument if a function is missing or `slice_bytes_max` is not more than 0.
  explicit RegisteredHostMemory(RegisteredHostMemoryOptions options);

  [[nodiscard]] std::string_view name() const noexcept override { return options_.name; }
  [[nodiscard]] bool pins() const noexcept override { return true; }
  [[nodiscard]] std::int64_t slice_bytes_max() const noexcept override {
    return options_.slice_bytes_max;
  }
  [[nodiscard]] bool bound_by_memlock() const noexcept override {
    return options_.bound_by_memlock;
  }
  void pin(void* data, std::int64_t bytes) override { options_.pin(data, bytes); }
  void unpin(void* data, std::int64_t bytes) override { options_.unpin(data, bytes); }

 private:
  const RegisteredHostMemoryOptions options_;
};

/// Memory that `mlock` keeps from being swapped out, bound by RLIMIT_MEMLOCK. No driver knows it as
/// pinned, so copies from it wait on the host: it is for devices that cannot pin, on machines that
/// swap. Its `pin` throws `HostMemoryError` with the system's reason.
[[nodiscard]] std::shared_ptr<HostMemory> locked_host_memory();

OFFSTAGE_NAMESPACE_END
