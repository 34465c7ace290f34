// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <offstage/components/component.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>
#include <offstage/staging/stageable.hpp>
#include <offstage/testing/fake_telemetry.hpp>
#include <offstage/testing/recording_sink.hpp>

#include <gmock/gmock.h>

#include <cstdint>
#include <memory>

namespace offstage {

inline const c10::Device kTestDevice(c10::DeviceType::CUDA, 0);

class MockStageable : public Stageable {
 public:
  MockStageable() {
    ON_CALL(*this, handles_own_failures).WillByDefault(::testing::Return(false));
    ON_CALL(*this, bytes).WillByDefault(::testing::Return(100));
    ON_CALL(*this, device).WillByDefault(::testing::Return(kTestDevice));
    // Questions, not commands: any number of them is right.
    EXPECT_CALL(*this, handles_own_failures).Times(::testing::AnyNumber());
    EXPECT_CALL(*this, bytes).Times(::testing::AnyNumber());
    EXPECT_CALL(*this, device).Times(::testing::AnyNumber());
  }
  MOCK_METHOD(void, load, (), (override));
  MOCK_METHOD(void, offload, (), (override));
  MOCK_METHOD(bool, handles_own_failures, (), (const, noexcept, override));
  MOCK_METHOD(std::int64_t, bytes, (), (const, noexcept, override));
  MOCK_METHOD(c10::Device, device, (), (const, noexcept, override));
};

/// A stageable of 100 bytes with a cache of its own, which handles its failures as a stager does:
/// one forced release for each.
class FakeStager final : public Stageable {
 public:
  explicit FakeStager(std::shared_ptr<BoundedAllocatorCache> cache) : cache_(std::move(cache)) {}

  void load() override {
    ++loads;
    if (fail_load) {
      loaded = false;
      cache_->release_forced();
      throw std::runtime_error("load failed");
    }
    loaded = true;
  }
  void offload() override {
    ++offloads;
    const bool was_loaded = loaded;
    loaded = false;
    if (was_loaded && fail_offload) {
      cache_->release_forced();
      throw std::runtime_error("offload failed");
    }
  }
  bool handles_own_failures() const noexcept override { return true; }
  std::int64_t bytes() const noexcept override { return 100; }
  c10::Device device() const noexcept override { return kTestDevice; }

  [[nodiscard]] std::int64_t live_bytes() const noexcept { return loaded ? 100 : 0; }

  bool loaded = false;
  bool fail_load = false;
  bool fail_offload = false;
  int loads = 0;
  int offloads = 0;

 private:
  std::shared_ptr<BoundedAllocatorCache> cache_;
};

/// A cache, a sink and a stageable that is checked strictly.
class ComponentFixture : public ::testing::Test {
 protected:
  static Placement resident() {
    return {.residence = Residence::kResident, .reason = PlacementReason::kNamed};
  }

  [[nodiscard]] int forced_releases() const {
    return static_cast<int>(cache->counters().decisions(RetentionReason::kForced));
  }
  [[nodiscard]] std::size_t dropped_errors() const { return sink->count(EventKind::kErrorDropped); }

  const std::shared_ptr<testing::FakeTelemetry> telemetry =
      std::make_shared<testing::FakeTelemetry>();
  const std::shared_ptr<testing::RecordingSink> sink = std::make_shared<testing::RecordingSink>();
  const std::shared_ptr<BoundedAllocatorCache> cache = std::make_shared<BoundedAllocatorCache>(
      kTestDevice, telemetry, std::make_shared<FixedRetention>(), sink);
  const std::shared_ptr<::testing::StrictMock<MockStageable>> stageable =
      std::make_shared<::testing::StrictMock<MockStageable>>();
  const std::shared_ptr<FakeStager> stager = std::make_shared<FakeStager>(cache);
};

}  // namespace offstage
