// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <offstage/device/telemetry_backend.hpp>
#include <offstage/device/telemetry_figures.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace offstage {

/// A backend, a device that it answers for, and how to set what it then says.
struct TelemetryUnderTest {
  std::shared_ptr<TelemetryBackend> backend;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  std::function<void(MemoryFigures)> set_figures;
  /// From now on no figure can be had.
  std::function<void()> break_figures;
  std::function<int()> releases;
  /// Bytes that the figures are whole multiples of, where real memory stands behind them.
  std::int64_t unit = 1;
};

struct TelemetryContractCase {
  std::string name;
  std::function<TelemetryUnderTest()> make;
};

/// What every TelemetryBackend promises.
class TelemetryContract : public ::testing::TestWithParam<TelemetryContractCase> {
 protected:
  /// Sets figures that are given in units.
  void set_figures(MemoryFigures figures) const {
    for (std::int64_t* const figure :
         {&figures.allocator.reserved, &figures.allocator.allocated,
          &figures.allocator.inactive_split, &figures.device.free, &figures.device.total}) {
      *figure *= subject.unit;
    }
    subject.set_figures(figures);
  }

  TelemetryUnderTest subject = GetParam().make();
};

TEST_P(TelemetryContract, HasAName) {
  EXPECT_FALSE(subject.backend->name().empty());
}

TEST_P(TelemetryContract, HandsOverFiguresUnchanged) {
  set_figures({.allocator = {.reserved = 300, .allocated = 100, .inactive_split = 50},
               .device = {.free = 600, .total = 1000}});
  const AllocatorStats stats = read_allocator_stats(*subject.backend, subject.device);
  EXPECT_EQ(stats.reserved, 300 * subject.unit);
  EXPECT_EQ(stats.allocated, 100 * subject.unit);
  EXPECT_EQ(stats.inactive_split, 50 * subject.unit);
  const DeviceMemory memory = read_device_memory(*subject.backend, subject.device);
  EXPECT_EQ(memory.free, 600 * subject.unit);
  EXPECT_EQ(memory.total, 1000 * subject.unit);
}

TEST_P(TelemetryContract, SeesFiguresChange) {
  set_figures(
      {.allocator = {.reserved = 100, .allocated = 100}, .device = {.free = 50, .total = 200}});
  EXPECT_EQ(subject.backend->allocator_stats(subject.device).reserved, 100 * subject.unit);
  EXPECT_EQ(subject.backend->device_memory(subject.device).free, 50 * subject.unit);
  set_figures(
      {.allocator = {.reserved = 200, .allocated = 100}, .device = {.free = 0, .total = 200}});
  EXPECT_EQ(subject.backend->allocator_stats(subject.device).reserved, 200 * subject.unit);
  EXPECT_EQ(subject.backend->device_memory(subject.device).free, 0);
}

TEST_P(TelemetryContract, QueriesReleaseNothing) {
  set_figures(
      {.allocator = {.reserved = 200, .allocated = 100}, .device = {.free = 100, .total = 400}});
  (void)subject.backend->allocator_stats(subject.device);
  (void)subject.backend->device_memory(subject.device);
  EXPECT_EQ(subject.releases(), 0);
}

TEST_P(TelemetryContract, AReleaseIsOneRelease) {
  subject.backend->release_cached(subject.device);
  EXPECT_EQ(subject.releases(), 1);
}

TEST_P(TelemetryContract, MissingFiguresAreErrorsAndNeverNumbers) {
  subject.break_figures();
  EXPECT_ANY_THROW((void)read_allocator_stats(*subject.backend, subject.device));
  EXPECT_ANY_THROW((void)read_device_memory(*subject.backend, subject.device));
}

}  // namespace offstage
