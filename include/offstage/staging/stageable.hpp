// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What a guard needs to know about a thing that can be brought to a device and sent back.

#include <offstage/base/config.hpp>

#include <c10/core/Device.h>

#include <cstdint>

OFFSTAGE_NAMESPACE_BEGIN

/// Something that lives in host memory and can be made available on a device for a while.
///
/// @par Threads
/// A `Component` serialises its calls of `load` and `offload`. Whoever shares one object between
/// several components, or calls it directly as well, must serialise the calls in the object.
class Stageable {
 public:
  Stageable() = default;
  Stageable(const Stageable&) = delete;
  Stageable& operator=(const Stageable&) = delete;
  Stageable(Stageable&&) = delete;
  Stageable& operator=(Stageable&&) = delete;
  virtual ~Stageable() = default;

  /// Makes the object usable on the device for work queued on the calling thread's current stream.
  /// If it is loaded already, nothing is copied, but the current stream still waits until the copy
  /// has arrived: that is why every holder calls it, not only the first.
  /// @throws Anything. The object is then not loaded, unless it was loaded before the call.
  virtual void load() = 0;

  /// Gives the device memory back. Does nothing if the object is not loaded.
  /// @throws Anything. The object is then not loaded either.
  virtual void offload() = 0;

  /// True if a `load` or `offload` that fails has already made the forced release of the
  /// allocator's cache that such a failure calls for; a guard must then not make another one.
  [[nodiscard]] virtual bool handles_own_failures() const noexcept = 0;

  /// The bytes that `load` brings to the device.
  [[nodiscard]] virtual std::int64_t bytes() const noexcept = 0;

  /// The device that `load` brings them to.
  [[nodiscard]] virtual c10::Device device() const noexcept = 0;
};

OFFSTAGE_NAMESPACE_END
