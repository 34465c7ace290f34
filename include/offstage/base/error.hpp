// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The errors that offstage itself throws. Errors of LibTorch pass through unwrapped.

#include <offstage/base/config.hpp>

#include <stdexcept>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN

/// Base of every error that offstage throws.
class OFFSTAGE_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~Error() override;
};

/// An argument is wrong on entry. Nothing was changed.
class OFFSTAGE_API InvalidArgument : public Error {
 public:
  using Error::Error;
  ~InvalidArgument() override;
};

/// A policy document is malformed, or names what does not exist. Nothing was changed.
class OFFSTAGE_API PolicyError : public Error {
 public:
  /// @param pointer   JSON pointer to the offending place (RFC 6901); empty is the whole document.
  /// @param expected  What would have been right there.
  /// @param found     What was there instead.
  PolicyError(std::string pointer, std::string expected, std::string found);
  ~PolicyError() override;

  [[nodiscard]] const std::string& pointer() const noexcept { return pointer_; }
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }
  [[nodiscard]] const std::string& found() const noexcept { return found_; }

 private:
  std::string pointer_;
  std::string expected_;
  std::string found_;
};

/// The right call at the wrong moment. Nothing was changed.
class OFFSTAGE_API StateError : public Error {
 public:
  using Error::Error;
  ~StateError() override;
};

/// A module or one of its tensors cannot be staged. The message names the tensor's path. Thrown
/// before anything was changed.
class OFFSTAGE_API StagingError : public Error {
 public:
  using Error::Error;
  ~StagingError() override;
};

/// A figure of the allocator or of the device is absent or impossible, or no backend can supply it.
class OFFSTAGE_API TelemetryError : public Error {
 public:
  using Error::Error;
  ~TelemetryError() override;
};

/// Host memory for masters could not be had or could not be pinned.
class OFFSTAGE_API HostMemoryError : public Error {
 public:
  using Error::Error;
  ~HostMemoryError() override;
};

/// A weights file is missing, malformed, truncated, or does not match the module.
class OFFSTAGE_API CheckpointError : public Error {
 public:
  using Error::Error;
  ~CheckpointError() override;
};

OFFSTAGE_NAMESPACE_END
