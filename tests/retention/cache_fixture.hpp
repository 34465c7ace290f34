// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <offstage/retention/bounded_allocator_cache.hpp>
#include <offstage/testing/fake_telemetry.hpp>
#include <offstage/testing/recording_sink.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace offstage {

inline const c10::Device kCacheDevice(c10::DeviceType::CUDA, 1);

/// Telemetry that says what a test tells it to say, and caches that ask it.
class CacheTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<BoundedAllocatorCache> cache_of(
      std::shared_ptr<const RetentionPolicy> policy,
      BoundedAllocatorCacheOptions options = {}) const {
    return std::make_unique<BoundedAllocatorCache>(kCacheDevice, telemetry, std::move(policy), sink,
                                                   std::move(options));
  }

  void find(std::int64_t cached, std::int64_t free = 50, std::int64_t total = 100,
            std::int64_t inactive_split = 0) const {
    telemetry->set_figures({.allocator = {.reserved = cached, .inactive_split = inactive_split},
                            .device = {.free = free, .total = total}});
  }

  /// One decision of a cache that finds so much cached.
  [[nodiscard]] bool releases(BoundedAllocatorCache& cache, std::int64_t cached,
                              std::int64_t free = 50, std::int64_t total = 100) const {
    find(cached, free, total);
    return cache.release_if_needed();
  }

  [[nodiscard]] int release_calls() const { return telemetry->calls().release_cached; }

  const std::shared_ptr<testing::FakeTelemetry> telemetry =
      std::make_shared<testing::FakeTelemetry>();
  const std::shared_ptr<testing::RecordingSink> sink = std::make_shared<testing::RecordingSink>();
};

}  // namespace offstage
