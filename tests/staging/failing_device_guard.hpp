// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <optional>

namespace offstage {

/// Stands in front of the guard of a device type, passes every call on, and fails on request, as a
/// driver does whose device is lost.
class FailingDeviceGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  /// Installed once and never removed, since events keep a pointer to the guard they came from.
  static FailingDeviceGuard& install(c10::DeviceType type) {
    static auto* const guard = new FailingDeviceGuard(*c10::impl::getDeviceGuardImpl(type));
    c10::impl::registerDeviceGuard(type, guard);
    return *guard;
  }

  std::optional<c10::Stream> lost_stream;  ///< Recording an event there or awaiting it fails.
  std::optional<c10::Stream> no_events;    ///< Recording an event there fails.
  bool no_current_stream = false;          ///< Asking for the current stream fails.
  bool no_memory_records = false;          ///< Recording a stream on memory fails.

  /// Nothing fails any more.
  void recover() {
    lost_stream.reset();
    no_events.reset();
    no_current_stream = false;
    no_memory_records = false;
  }

  c10::DeviceType type() const override { return real_.type(); }
  c10::Device exchangeDevice(c10::Device device) const override {
    return real_.exchangeDevice(device);
  }
  c10::Device getDevice() const override { return real_.getDevice(); }
  void setDevice(c10::Device device) const override { real_.setDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    real_.uncheckedSetDevice(device);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return real_.deviceCount(); }

  c10::Stream getStream(c10::Device device) const override {
    TORCH_CHECK(!no_current_stream, "no current stream");
    return real_.getStream(device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return real_.getDefaultStream(device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    return real_.getStreamFromGlobalPool(device, high);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return real_.getNewStream(device, priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return real_.exchangeStream(stream);
  }
  bool queryStream(const c10::Stream& stream) const override { return real_.queryStream(stream); }
  void synchronizeStream(const c10::Stream& stream) const override {
    TORCH_CHECK(stream != lost_stream, "the stream is lost");
    real_.synchronizeStream(stream);
  }
  void synchronizeDevice(c10::DeviceIndex index) const override { real_.synchronizeDevice(index); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex index,
              c10::EventFlag flag) const override {
    TORCH_CHECK(stream != lost_stream && stream != no_events, "no event can be recorded");
    real_.record(event, stream, index, flag);
  }
  void block(void* event, const c10::Stream& stream) const override { real_.block(event, stream); }
  bool queryEvent(void* event) const override { return real_.queryEvent(event); }
  void synchronizeEvent(void* event) const override { real_.synchronizeEvent(event); }
  void destroyEvent(void* event, c10::DeviceIndex index) const noexcept override {
    real_.destroyEvent(event, index);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    TORCH_CHECK(!no_memory_records, "no stream can be recorded");
    real_.recordDataPtrOnStream(data, stream);
  }

 private:
  explicit FailingDeviceGuard(const c10::impl::DeviceGuardImplInterface& real) : real_(real) {}

  const c10::impl::DeviceGuardImplInterface& real_;
};

}  // namespace offstage
