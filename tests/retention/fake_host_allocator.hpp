// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace offstage {

/// LibTorch's pinned allocator of a device type that is not there: it allocates nothing and says
/// what a test tells it to say.
class FakeHostAllocator final : public at::HostAllocator {
 public:
  at::DataPtr allocate(std::size_t /*bytes*/) override { return {}; }
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}
  bool record_event(void* /*data*/, void* /*context*/, c10::Stream /*stream*/) override {
    return false;
  }
  void empty_cache() override {
    ++releases;
    if (at_release) at_release();
    held = in_use;
  }
  at::HostStats get_stats() override {
    ++queries;
    if (at_query) at_query();
    at::HostStats stats;
    stats.allocated_bytes.current = held;
    stats.active_bytes.current = in_use;
    return stats;
  }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  std::int64_t held = 0;
  std::int64_t in_use = 0;
  std::function<void()> at_query;
  std::function<void()> at_release;
  int queries = 0;
  int releases = 0;
};

/// The one of XPU, as new. LibTorch keeps a pointer to it.
inline FakeHostAllocator& installed_host_allocator() {
  static FakeHostAllocator allocator;
  static const bool installed = [] {
    at::setHostAllocator(c10::DeviceType::XPU, &allocator);
    return true;
  }();
  static_cast<void>(installed);
  allocator.held = 0;
  allocator.in_use = 0;
  allocator.at_query = nullptr;
  allocator.at_release = nullptr;
  allocator.queries = 0;
  allocator.releases = 0;
  return allocator;
}

}  // namespace offstage
