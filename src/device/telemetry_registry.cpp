// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/module_telemetry.hpp>
#include <offstage/device/telemetry_registry.hpp>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

// Its allocator is not a DeviceAllocator in torch_npu up to 2.12, so the generic query fails.
constexpr const char* kNeedsModule = "npu";

std::string to_lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

// LibTorch prints a type that it does not know as an error; only those that it knows matter.
bool is_name_of_another_type(const std::string& name) {
  for (int value = 0; value < c10::COMPILE_TIME_MAX_DEVICE_TYPES; ++value) {
    const auto type = static_cast<c10::DeviceType>(value);
    if (type == c10::DeviceType::PrivateUse1 || !c10::isValidDeviceType(type)) continue;
    if (c10::DeviceTypeName(type, /*lower_case=*/true) == name) return true;
  }
  return false;
}

void require_backend(const std::shared_ptr<TelemetryBackend>& backend) {
  if (backend == nullptr) throw InvalidArgument("telemetry registry: backend must not be null");
}

}  // namespace

TelemetryRegistry::TelemetryRegistry(std::shared_ptr<TelemetryBackend> generic)
    : generic_(std::move(generic)) {
  require_backend(generic_);
}

void TelemetryRegistry::register_backend(c10::DeviceType type,
                                         std::shared_ptr<TelemetryBackend> backend) {
  require_backend(backend);
  const std::lock_guard lock(mutex_);
  by_type_[type] = std::move(backend);
}

void TelemetryRegistry::register_backend(const std::string& name,
                                         std::shared_ptr<TelemetryBackend> backend) {
  require_backend(backend);
  std::string key = to_lower(name);
  if (key.empty()) throw InvalidArgument("telemetry registry: name must not be empty");
  if (is_name_of_another_type(key)) {
    throw InvalidArgument("telemetry registry: name must be the name of a plug-in device, got '" +
                          name + "'; register by device type instead");
  }
  const std::lock_guard lock(mutex_);
  by_name_[std::move(key)] = std::move(backend);
}

void TelemetryRegistry::register_module(const std::string& name,
                                        std::shared_ptr<DeviceModule> module) {
  register_backend(name, std::make_shared<ModuleTelemetry>(std::move(module)));
}

std::shared_ptr<TelemetryBackend> TelemetryRegistry::resolve(c10::DeviceType type) const {
  const std::string plug_in = type == c10::DeviceType::PrivateUse1
                                  ? c10::get_privateuse1_backend(/*lower_case=*/true)
                                  : std::string();
  const std::lock_guard lock(mutex_);
  if (!plug_in.empty()) {
    if (const auto found = by_name_.find(plug_in); found != by_name_.end()) return found->second;
  }
  if (const auto found = by_type_.find(type); found != by_type_.end()) return found->second;
  if (plug_in == kNeedsModule) {
    throw TelemetryError(
        "telemetry registry: device 'npu' needs a backend of its own, since its allocator has no "
        "generic statistics; register one with register_module(\"npu\", ...)");
  }
  return generic_;
}

OFFSTAGE_NAMESPACE_END
