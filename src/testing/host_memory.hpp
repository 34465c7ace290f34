// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// LibTorch's allocator of pinned memory for the simulated device, and the provider for masters.

#include "monitor.hpp"

#include <offstage/base/config.hpp>
#include <offstage/device/host_memory.hpp>

#include <ATen/core/CachingHostAllocator.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// Pinned host memory for LibTorch (`pin_memory()`, `pinned_memory(true)`): mappings of exactly the
/// size asked for, or of the next power of two as CUDA's, and on request a cache as CUDA's. Memory
/// that queued copies still use is unmapped or cached after they ran.
class SimulatedHostAllocator final : public at::HostAllocator {
 public:
  /// The one of the process; never destroyed.
  static SimulatedHostAllocator& get();

  at::DataPtr allocate(std::size_t bytes) override;
  at::DeleterFnPtr raw_deleter() const override { return &SimulatedHostAllocator::free; }
  void copy_data(void* dest, const void* src, std::size_t count) const override;
  bool record_event(void* ptr, void* ctx, c10::Stream stream) override;
  void empty_cache() override;
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override;
  void reset_peak_stats() override;

  /// Rounds later requests up to powers of two.
  void set_rounding(bool on);
  /// Keeps what is freed from now on for requests of the same size, until `empty_cache()`.
  void set_caching(bool on);
  /// Unmaps or caches freed memory that queued copies are done with by now.
  void collect();

 private:
  struct Block {
    void* data = nullptr;
    std::int64_t bytes = 0;
    std::vector<Mark> users;
  };

  static void free(void* data) noexcept;
  /// The block that an address lies in.
  [[nodiscard]] std::map<void*, Block>::iterator block_of(void* address);
  void give_up_unused();
  void unmap(const Block& block);

  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::vector<Block> freed_;   // Still used by queued copies.
  std::vector<Block> cached_;  // Used by nobody.
  at::HostStats stats_;
  bool rounding_ = false;
  bool caching_ = false;
};

/// `Simulator::host_memory()`.
class SimulatedHostMemory final : public HostMemory {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "simulated"; }
  [[nodiscard]] bool pins() const noexcept override { return true; }
  [[nodiscard]] std::int64_t slice_bytes_max() const noexcept override { return kGiB; }
  /// Memory that is still pinned is reported by the next synchronisation: as a race if a queued
  /// copy is not done with it. It stays mapped until all that is queued now has run.
  void free(void* data, std::int64_t bytes) noexcept override;
  void pin(void* data, std::int64_t bytes) override;
  void unpin(void* data, std::int64_t bytes) override;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
