// SPDX-License-Identifier: Apache-2.0
#include "monitor.hpp"

#include <offstage/base/error.hpp>
#include <offstage/testing/fault_script.hpp>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

Address to_address(const void* data) {
  return reinterpret_cast<Address>(data);
}

Address behind(const void* data, std::int64_t bytes) {
  return to_address(data) + static_cast<Address>(bytes);
}

// What runs in the place of a task whose memory is not mapped.
StreamQueue::Task fault_of(const std::string& name) {
  return [name] {
    constexpr std::int32_t kIllegalAddress = 700;  // CUDA's number.
    throw c10::AcceleratorError(
        {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, kIllegalAddress,
        "simulated accelerator: '" + name + "' was not run: it uses memory that is not allocated");
  };
}

StreamQueue::Task keep_error(StreamQueue::Task task, std::exception_ptr& error) {
  return [task = std::move(task), &error] {
    try {
      task();
    } catch (...) {
      error = std::current_exception();
    }
  };
}

}  // namespace

ActorId Monitor::add_stream(std::size_t device, const std::string& name) {
  const std::lock_guard lock(mutex_);
  time_.add_stream(device, name);
  return checker_.add_actor(name);
}

void Monitor::set_race_action(RaceAction action) {
  const std::lock_guard lock(mutex_);
  if (action_ == RaceAction::kIgnore) checker_.assume_written();  // Nobody has watched.
  action_ = action;
}

RaceAction Monitor::race_action() const {
  const std::lock_guard lock(mutex_);
  return action_;
}

void Monitor::set_costs(CostModel costs) {
  const std::lock_guard lock(mutex_);
  time_.costs = std::move(costs);
}

CostModel Monitor::costs() const {
  const std::lock_guard lock(mutex_);
  return time_.costs;
}

void Monitor::set_recording(bool on) {
  const std::lock_guard lock(mutex_);
  time_.recording = on;
}

Timeline Monitor::timeline() const {
  const std::lock_guard lock(mutex_);
  return time_.timeline();
}

std::vector<RaceReport> Monitor::races() const {
  const std::lock_guard lock(mutex_);
  return races_;
}

void Monitor::host_work(Nanoseconds duration) {
  const std::lock_guard lock(mutex_);
  time_.host_work(duration);
}

void Monitor::advance_host(Nanoseconds duration) {
  const std::lock_guard lock(mutex_);
  time_.check("advance_host", duration);
  time_.host_work(duration);
}

void Monitor::handle(const RaceReport& report) {
  races_.push_back(report);
  if (action_ == RaceAction::kThrow) throw RaceError(report);
  if (action_ == RaceAction::kAbort) {
    std::fprintf(stderr, "%s\n", report.text.c_str());
    std::abort();
  }
}

void Monitor::submit(StreamQueue& stream, Work work) {
  submit(stream, std::move(work), /*error=*/nullptr);
}

void Monitor::submit(StreamQueue& stream, Work work, std::exception_ptr* error) {
  const std::lock_guard lock(mutex_);
  const Nanoseconds delay = FaultScript::take_delay();
  time_.check(work.name, delay);
  time_.check(work.name, work.cost);
  time_.check(work.name, work.cost + delay);
  if (action_ == RaceAction::kIgnore) {
    work.accesses.clear();
  } else if (!work.reported) {
    if (const auto found = checker_.check(stream.actor(), work.name, work.accesses)) {
      handle(*found);
      work.reported = true;
    }
  }
  if (work.reported && !checker_.are_mapped(work.accesses)) {
    work.run = fault_of(work.name);
    work.accesses.clear();
  }
  if (error != nullptr) work.run = keep_error(std::move(work.run), *error);
  time_.run(stream.actor(), work.name, work.engine, work.cost + delay);
  stream.enqueue(std::move(work.run));
  if (work.counted) work.counted();
  checker_.add(stream.actor(), std::move(work.name), std::move(work.accesses));
}

void Monitor::check_lifetimes(StreamQueue& stream, Work& work) {
  const std::lock_guard lock(mutex_);
  if (action_ == RaceAction::kIgnore) return;
  const auto found = checker_.check_lifetimes(stream.actor(), work.name, work.accesses);
  if (!found) return;
  handle(*found);
  work.reported = true;
}

void Monitor::submit_and_wait(StreamQueue& stream, Work work, bool program_waits) {
  std::exception_ptr error;
  submit(stream, std::move(work), &error);
  const Mark done = mark(stream);
  if (program_waits) {
    host_wait(done);
  } else {
    done.marker.wait();
  }
  if (error) std::rethrow_exception(std::move(error));
}

Mark Monitor::mark(StreamQueue& stream) {
  const std::lock_guard lock(mutex_);
  return {stream.record(), checker_.snapshot(stream.actor()), time_.tail(stream.actor()), epoch_};
}

Mark Monitor::record(StreamQueue& stream) {
  {
    const std::lock_guard lock(mutex_);
    time_.host_work(time_.costs.enqueue + FaultScript::take_delay());
  }
  return mark(stream);
}

void Monitor::wait(StreamQueue& stream, const Mark& mark) {
  const std::lock_guard lock(mutex_);
  stream.wait_for(mark.marker);
  if (is_current(mark)) checker_.wait(stream.actor(), mark.seen);
  time_.wait(stream.actor(), time_of(mark), FaultScript::take_delay());
}

void Monitor::host_wait(const Mark& mark, bool orders) {
  mark.marker.wait();
  const std::lock_guard lock(mutex_);
  if (orders && is_current(mark)) checker_.host_wait(mark.seen);
  time_.host_wait(time_of(mark));
  time_.host_work(FaultScript::take_delay());
}

bool Monitor::reached(const Mark& mark, bool program_asks) {
  {
    const std::lock_guard lock(mutex_);
    if (program_asks) time_.host_work(time_.costs.query + FaultScript::take_delay());
    if (time_of(mark) > time_.now()) return false;
    if (is_held() && !mark.marker.reached()) return false;
  }
  mark.marker.wait();
  if (program_asks) {
    const std::lock_guard lock(mutex_);
    if (is_current(mark)) checker_.host_wait(mark.seen);
  }
  return true;
}

bool Monitor::Hold::closed() const {
  const auto hold = latch.lock();
  return hold && !hold->is_open();
}

void Monitor::add_hold(StreamQueue& stream, const std::shared_ptr<Latch>& hold) {
  const std::lock_guard lock(mutex_);
  std::erase_if(holds_, [](const Hold& each) { return each.latch.expired(); });
  holds_.push_back({stream.actor(), hold});
}

std::string Monitor::held_streams() const {
  const std::lock_guard lock(mutex_);
  std::string names;
  for (const Hold& hold : holds_) {
    if (!hold.closed()) continue;
    names += (names.empty() ? "" : ", ") + checker_.name_of(hold.stream);
  }
  return names;
}

void Monitor::open_holds() noexcept {
  const std::lock_guard lock(mutex_);
  for (const Hold& each : holds_) {
    if (const auto hold = each.latch.lock()) hold->open();
  }
}

double Monitor::milliseconds_between(const Mark& first, const Mark& second) const {
  const std::lock_guard lock(mutex_);
  return std::chrono::duration<double, std::milli>(time_of(second) - time_of(first)).count();
}

Nanoseconds Monitor::time_of(const Mark& mark) const {
  return is_current(mark) ? mark.time : Nanoseconds::zero();
}

bool Monitor::is_held() const {
  return std::ranges::any_of(holds_, &Hold::closed);
}

void Monitor::allocate(StreamQueue& stream, const void* data, std::int64_t bytes,
                       bool new_segment) {
  const std::lock_guard lock(mutex_);
  checker_.allocate(stream.actor(), to_address(data), behind(data, bytes));
  time_.host_work(time_.costs.allocate_cached + FaultScript::take_delay());
  if (new_segment) time_.host_work(time_.costs.allocate_segment);
}

void Monitor::free(StreamQueue& stream, const void* data, std::int64_t bytes,
                   std::span<const Mark> users) noexcept {
  const std::lock_guard lock(mutex_);
  VectorClock seen;
  for (const Mark& user : users) seen.join(user.seen);
  const auto found = checker_.free(stream.actor(), to_address(data), behind(data, bytes), seen);
  if (!found || action_ == RaceAction::kIgnore) return;
  try {
    handle(*found);
  } catch (...) {
    stream.errors().store(std::current_exception());
  }
}

void Monitor::release(const void* data, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  checker_.forget(to_address(data), behind(data, bytes));
  time_.host_work(time_.costs.release_segment);
}

void Monitor::watch_host(const void* data, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  checker_.watch_host(to_address(data), behind(data, bytes));
}

void Monitor::forget_host(const void* data, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  checker_.forget(to_address(data), behind(data, bytes));
}

void Monitor::free_host(const void* data, std::int64_t bytes) noexcept {
  try {
    host_access("free of host memory", data, bytes, /*writes=*/true);
    throw HostMemoryError("simulated accelerator: " + std::to_string(bytes) +
                          " bytes of host memory were freed while they were pinned");
  } catch (...) {
    errors_.store(std::current_exception());
  }
  forget_host(data, bytes);
}

void Monitor::host_access(std::string name, const void* data, std::int64_t bytes, bool writes) {
  host_access(std::move(name), {{.layout = ByteLayout(to_address(data), {bytes}, {1}, 1),
                                 .reads = !writes,
                                 .writes = writes,
                                 .device = false}});
}

void Monitor::host_access(std::string name, Accesses accesses) {
  const std::lock_guard lock(mutex_);
  if (action_ == RaceAction::kIgnore) return;
  if (const auto found = checker_.check(kHost, name, accesses)) handle(*found);
  checker_.add(kHost, std::move(name), std::move(accesses));
}

void Monitor::reset() {
  const std::lock_guard lock(mutex_);
  ++epoch_;
  checker_.reset();
  time_.reset();
  races_.clear();
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
