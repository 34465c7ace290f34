// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Which backend answers for which device.

#include <offstage/base/config.hpp>
#include <offstage/device/device_module.hpp>
#include <offstage/device/generic_telemetry.hpp>
#include <offstage/device/telemetry_backend.hpp>

#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN

/// Chooses a TelemetryBackend by device type and, for PrivateUse1, by the name under which the
/// plug-in registered it with LibTorch. An ordinary object: it is passed to whoever needs it.
///
/// `resolve` takes the first of these that there is:
///  1. PrivateUse1 only: the backend or module registered under the device's name;
///  2. the backend registered for the device's type;
///  3. PrivateUse1 named "npu": an error. The allocator of torch_npu up to 2.12 has no generic
///     statistics, so the generic backend would fail at every decision and every decision would
///     flush the cache. With a version whose allocator has them, register a GenericTelemetry
///     under "npu";
///  4. the generic backend.
///
/// @par Threads
/// All members may be called concurrently.
class TelemetryRegistry {
 public:
  /// @param generic  Answers wherever nothing else is registered. Tests pass a double.
  /// @throws InvalidArgument if `generic` is null.
  explicit TelemetryRegistry(
      std::shared_ptr<TelemetryBackend> generic = std::make_shared<GenericTelemetry>());

  /// `backend` answers for every device of `type`; replaces an earlier one.
  /// @throws InvalidArgument if `backend` is null.
  void register_backend(c10::DeviceType type, std::shared_ptr<TelemetryBackend> backend);

  /// `backend` answers for PrivateUse1 while that has the name `name` (any case); replaces an
  /// earlier one. May be called before the plug-in registers its name.
  /// @throws InvalidArgument if `backend` is null, or if `name` is empty or the name of a device
  ///         type that is not a plug-in's ("cuda").
  void register_backend(const std::string& name, std::shared_ptr<TelemetryBackend> backend);

  /// The same with a ModuleTelemetry over `module`.
  void register_module(const std::string& name, std::shared_ptr<DeviceModule> module);

  /// The backend for devices of `type`. Touches no device.
  /// @throws TelemetryError for a PrivateUse1 device named "npu" without a backend of its own.
  [[nodiscard]] std::shared_ptr<TelemetryBackend> resolve(c10::DeviceType type) const;

 private:
  std::shared_ptr<TelemetryBackend> generic_;
  mutable std::mutex mutex_;
  std::map<c10::DeviceType, std::shared_ptr<TelemetryBackend>> by_type_;
  std::map<std::string, std::shared_ptr<TelemetryBackend>> by_name_;  // Lower-case names.
};

OFFSTAGE_NAMESPACE_END
