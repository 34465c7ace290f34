// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/device/host_allocator_memory.hpp>
#include <offstage/device/telemetry_registry.hpp>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <string>
#include <unistd.h>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

c10::Device checked_device(c10::Device device) {
  if (device.is_cpu()) return c10::Device(c10::kCPU);
  if (!device.has_index()) {
    throw InvalidArgument("device context: device must have an index, got '" + device.str() + "'");
  }
  at::globalContext().lazyInitDevice(device.type());
  return device;
}

c10::Stream checked_copy_stream(c10::Device device, const std::optional<c10::Stream>& given) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (!given) return guard.getNewStream(device);
  if (given->device() != device && !device.is_cpu()) {
    throw InvalidArgument("device context: copy_stream must be on " + device.str() + ", it is on " +
                          given->device().str());
  }
  return *given;
}

}  // namespace

DeviceContext::DeviceContext(c10::Device device, DeviceContextOptions options)
    : device_(checked_device(device)),
      copy_stream_(checked_copy_stream(device_, options.copy_stream)),
      host_memory_(options.host_memory ? std::move(options.host_memory)
                                       : default_host_memory(device_.type())),
      telemetry_(options.telemetry || device_.is_cpu()
                     ? std::move(options.telemetry)
                     : TelemetryRegistry().resolve(device_.type())),
      sink_(std::move(options.sink)),
      capture_probe_(std::move(options.capture_probe)),
      pinned_ledger_(options.pinned_ledger ? options.pinned_ledger : PinnedLedger::of_process()),
      process_id_(::getpid()) {}

std::shared_ptr<DeviceContext> DeviceContext::create(c10::Device device,
                                                     DeviceContextOptions options) {
  return std::make_shared<DeviceContext>(device, std::move(options));
}

c10::Stream DeviceContext::current_stream() const {
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
}

void DeviceContext::synchronize(const c10::Stream& stream) const {
  if (has_streams()) c10::impl::VirtualGuardImpl(device_.type()).synchronizeStream(stream);
}

bool DeviceContext::is_capturing() const {
  return capture_probe_ != nullptr && (capture_probe_->is_capturing(current_stream()) ||
                                       capture_probe_->is_capturing(copy_stream_));
}

bool DeviceContext::is_creating_process() const noexcept {
  return process_id_ == ::getpid();
}

OFFSTAGE_NAMESPACE_END
