// SPDX-License-Identifier: Apache-2.0
#include "virtual_time.hpp"

#include <offstage/base/error.hpp>

#include <algorithm>
#include <iterator>
#include <limits>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

/// Half of what 64 bits hold: a sum of two does not overflow.
constexpr Nanoseconds kLatest = Nanoseconds::max() / 2;

void check_cost(const std::string& name, Nanoseconds cost, Nanoseconds room) {
  if (cost >= Nanoseconds::zero() && cost <= room) return;
  throw InvalidArgument(
      "simulated accelerator: '" + name + "' costs " + std::to_string(cost.count()) +
      " ns, which is " +
      (cost < Nanoseconds::zero() ? "negative" : "more than the clock can count"));
}

}  // namespace

Nanoseconds EngineSchedule::take(Nanoseconds ready, Nanoseconds cost) {
  Nanoseconds start = ready;
  auto next = busy_.upper_bound(start);
  if (next != busy_.begin()) start = std::max(start, std::prev(next)->second);
  while (next != busy_.end() && next->first < start + cost) {
    start = std::max(start, next->second);
    ++next;
  }
  if (cost > Nanoseconds::zero()) busy_.emplace(start, start + cost);
  return start;
}

void EngineSchedule::forget_before(Nanoseconds now) {
  while (!busy_.empty() && busy_.begin()->second <= now) busy_.erase(busy_.begin());
}

VirtualTime::VirtualTime(std::size_t devices) : streams_(1), engines_(devices) {}

void VirtualTime::add_stream(std::size_t device, std::string name) {
  Stream stream;
  stream.device = device;
  stream.name = std::move(name);
  streams_.push_back(std::move(stream));
}

void VirtualTime::check(const std::string& name, Nanoseconds cost) const {
  check_cost(name, cost, kLatest - std::max(latest_, host_));
}

void VirtualTime::run(ActorId id, const std::string& name, Engine engine, Nanoseconds cost) {
  Stream& stream = streams_[id];
  if (!stream.used) order_.push_back(id);
  stream.used = true;
  host_ += costs.enqueue;
  const Nanoseconds ready = std::max(stream.ready, host_);
  Nanoseconds start = ready;
  if (engine != Engine::kNone) {
    EngineSchedule& schedule = engines_[stream.device][static_cast<std::size_t>(engine)];
    schedule.forget_before(host_);
    start = schedule.take(ready, cost);
  }
  stream.stalled += start - std::max(stream.own_end, host_);
  stream.busy += cost;
  stream.own_end = stream.ready = start + cost;
  latest_ = std::max(latest_, stream.own_end);
  if (recording) spans_.push_back({name, stream.name, engine, host_, start, start + cost});
}

Nanoseconds VirtualTime::tail(ActorId stream) const {
  return std::max(streams_[stream].ready, host_);
}

void VirtualTime::wait(ActorId stream, Nanoseconds until, Nanoseconds delay) {
  host_ += costs.enqueue;
  Nanoseconds& ready = streams_[stream].ready;
  ready = std::max(ready, until);
  if (delay > Nanoseconds::zero()) ready = std::max(ready, host_) + delay;
}

void VirtualTime::host_wait(Nanoseconds until) {
  if (until <= host_) return;
  host_waited_ += until - host_;
  host_ = until;
}

Timeline VirtualTime::timeline() const {
  Timeline timeline;
  timeline.spans = spans_;
  timeline.host = host_;
  timeline.host_waited = host_waited_;
  timeline.makespan = host_;
  for (const ActorId id : order_) {
    const Stream& stream = streams_[id];
    timeline.streams.push_back({stream.name, stream.busy, stream.stalled, stream.own_end});
    timeline.makespan = std::max(timeline.makespan, stream.own_end);
  }
  return timeline;
}

void VirtualTime::reset() {
  for (Stream& stream : streams_) {
    stream = Stream{.device = stream.device, .name = std::move(stream.name)};
  }
  order_.clear();
  std::fill(engines_.begin(), engines_.end(), Engines{});
  spans_.clear();
  latest_ = host_ = host_waited_ = Nanoseconds::zero();
}

}  // namespace testing::detail

namespace testing {
namespace {

std::chrono::nanoseconds time_for(std::int64_t amount, std::int64_t per_microsecond) {
  // In two steps: amount * 1000 must not overflow.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 1000;
  const std::int64_t whole = amount / per_microsecond;
  const std::int64_t rest = amount % per_microsecond;
  if (whole >= kMost) return std::chrono::nanoseconds::max();
  const std::int64_t part =
      per_microsecond < kMost ? rest * 1000 / per_microsecond : rest / (per_microsecond / 1000);
  return std::chrono::nanoseconds(whole * 1000 + part);
}

std::chrono::nanoseconds sum_of(const std::string& name, std::chrono::nanoseconds latency,
                                std::chrono::nanoseconds time) {
  detail::check_cost(name, latency, detail::kLatest);
  detail::check_cost(name, time, detail::kLatest);
  return latency + time;
}

}  // namespace

std::chrono::nanoseconds CostModel::cost_of(const KernelWork& work) const {
  if (const auto own = kernels.find(work.name); own != kernels.end()) {
    return sum_of(work.name, own->second(work), {});
  }
  return sum_of(work.name, kernel_latency,
                std::max(time_for(work.bytes, memory_bandwidth),
                         time_for(work.flops, flops_per_microsecond)));
}

std::chrono::nanoseconds CostModel::copy_cost(std::int64_t bytes, std::int64_t bandwidth) const {
  return sum_of("copy", copy_latency, time_for(bytes, bandwidth));
}

std::string_view to_string(Engine engine) noexcept {
  switch (engine) {
    case Engine::kNone:
      return "none";
    case Engine::kCompute:
      return "compute";
    case Engine::kH2d:
      return "h2d";
    case Engine::kD2h:
      return "d2h";
    case Engine::kPeer:
      return "peer";
  }
  return "unknown";
}

}  // namespace testing
OFFSTAGE_NAMESPACE_END
