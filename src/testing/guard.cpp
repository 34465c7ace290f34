// SPDX-License-Identifier: Apache-2.0
#include "registration.hpp"
#include "runtime.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

// What a c10::Event points to.
struct Event {
  c10::DeviceIndex device = 0;
  Mark mark;  // Replaced by every recording.
};

class DeviceGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kSimulated; }

  c10::DeviceIndex deviceCount() const noexcept override { return Runtime::get().device_count(); }

  c10::Device getDevice() const override { return {kSimulated, Runtime::current_device()}; }

  void setDevice(c10::Device device) const override {
    Runtime::set_current_device(Runtime::get().check(device.index()));
  }

  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < deviceCount()) {
      Runtime::set_current_device(device.index());
    }
  }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device old = getDevice();
    setDevice(device);
    return old;
  }

  c10::Stream getStream(c10::Device device) const override {
    return Runtime::get().current_stream(device.index());
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT,
                       c10::Device(kSimulated, Runtime::get().check(device.index())));
  }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return Runtime::get().new_stream(device.index());
  }

  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return Runtime::get().new_stream(device.index());
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    return Runtime::get().exchange_stream(stream);
  }

  bool queryStream(const c10::Stream& stream) const override {
    enter(FaultPoint::kQuery);
    Monitor& monitor = Runtime::get().monitor();
    return monitor.reached(monitor.mark(Runtime::get().queue(stream)), /*program_asks=*/true);
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    const bool obeyed = enter(FaultPoint::kSynchronize);
    count(stream.device_index(), &SimulatorCounters::host_waits);
    if (obeyed) Runtime::get().synchronize(stream);
  }

  void synchronizeDevice(c10::DeviceIndex index) const override {
    const bool obeyed = enter(FaultPoint::kSynchronize);
    count(index, &SimulatorCounters::host_waits);
    if (obeyed) Runtime::get().synchronize(index);
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device_index,
              c10::EventFlag /*flag*/) const override {
    TORCH_CHECK(device_index == -1 || device_index == stream.device_index(),
                "simulated accelerator: an event of device ", static_cast<int>(device_index),
                " cannot be recorded on ", stream);
    const bool obeyed = enter(FaultPoint::kRecord);
    count(stream.device_index(), &SimulatorCounters::events_recorded);
    if (!obeyed) return;
    Mark mark = Runtime::get().monitor().record(Runtime::get().queue(stream));
    if (*event == nullptr) {
      *event = new Event{stream.device_index(), std::move(mark)};
    } else {
      static_cast<Event*>(*event)->mark = std::move(mark);
    }
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const bool obeyed = enter(FaultPoint::kWait);
    count(stream.device_index(), &SimulatorCounters::stream_waits);
    if (!obeyed) return;
    Runtime::get().monitor().wait(Runtime::get().queue(stream), static_cast<Event*>(event)->mark);
  }

  bool queryEvent(void* event) const override {
    enter(FaultPoint::kQuery);
    if (event == nullptr) return true;
    return Runtime::get().monitor().reached(static_cast<Event*>(event)->mark,
                                            /*program_asks=*/true);
  }

  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    const bool obeyed = enter(FaultPoint::kSynchronize);
    const auto& recorded = *static_cast<Event*>(event);
    count(recorded.device, &SimulatorCounters::host_waits);
    if (!obeyed) return;
    Runtime::get().monitor().host_wait(recorded.mark);
    Runtime::get().throw_errors(recorded.device);
  }

  double elapsedTime(void* first, void* second, c10::DeviceIndex /*index*/) const override {
    const auto mark_of = [](void* event) {
      return event == nullptr ? Mark{} : static_cast<Event*>(event)->mark;
    };
    return Runtime::get().monitor().milliseconds_between(mark_of(first), mark_of(second));
  }

  void destroyEvent(void* event, c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Event*>(event);
  }

  void recordDataPtrOnStream(const c10::DataPtr& block, const c10::Stream& stream) const override {
    record_block_on_stream(block, stream);
  }

 private:
  static bool enter(FaultPoint point) { return Runtime::get().faults().enter(point); }

  static void count(c10::DeviceIndex index, std::int64_t SimulatorCounters::*field) {
    Runtime::get().device(index).counters.add(field);
  }
};

}  // namespace

void register_guard() {
  c10::impl::registerDeviceGuard(kSimulated, new DeviceGuard);
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
