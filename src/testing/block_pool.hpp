// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The caching allocator of one simulated device.

#include "monitor.hpp"
#include "stream_queue.hpp"

#include <offstage/base/config.hpp>

#include <c10/core/CachingDeviceAllocator.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

class CounterBoard;

/// Hands out blocks of segments and keeps freed ones for reuse, by the rules of LibTorch's CUDA
/// allocator: sizes rounded to 512 bytes; requests up to 1 MiB are cut from segments of 2 MiB,
/// those below 10 MiB from segments of 20 MiB, larger ones get a segment rounded to 2 MiB; a block
/// belongs to the stream that it was allocated on and only that stream gets it again; best fit;
/// free neighbours are joined. When the capacity is reached, idle segments are released and the
/// allocation is tried once more.
///
/// Device memory is host memory that tasks of the streams read and write.
class BlockPool {
 public:
  using Stats = c10::CachingDeviceAllocator::DeviceStats;

  BlockPool(std::string device_name, std::int64_t capacity, bool poison, CounterBoard& counters,
            Monitor& monitor);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() = default;  // The devices are never destroyed.

  /// @param bytes  More than 0.
  /// @throws c10::OutOfMemoryError
  [[nodiscard]] void* allocate(std::int64_t bytes, StreamQueue& stream);

  /// An allocation is about to fail for want of memory.
  void count_out_of_memory();

  /// Gives a block back. It is poisoned, then reused, in the order of its own stream; if other
  /// streams were recorded on it, only after what they have queued now. Until then it is parked:
  /// for the race checker it has gone back, for the figures it is active.
  /// @returns false if the block is not of this pool.
  bool free(void* data) noexcept;

  /// Notes that `stream` uses the block that begins at `data`. Other addresses are ignored.
  void record_stream(void* data, StreamQueue& stream);

  /// Releases the segments that are free as a whole. Blocks the host until their streams are idle.
  void release_cached();

  /// True if `data` points into a block that is handed out.
  [[nodiscard]] bool contains(const void* data) const;

  void set_capacity(std::int64_t bytes);
  /// Bytes of the device that other processes hold.
  void set_used_by_others(std::int64_t bytes);
  /// The part of the capacity, now or later, that this process may take.
  void set_fraction(double fraction);
  void reset_peaks();
  void reset_accumulated();
  [[nodiscard]] Stats stats() const;
  [[nodiscard]] std::int64_t capacity() const;
  [[nodiscard]] std::int64_t free_bytes() const;

 private:
  struct Block {
    std::byte* segment = nullptr;
    std::int64_t segment_size = 0;
    std::int64_t size = 0;
    std::int64_t requested = 0;
    StreamQueue* stream = nullptr;
    bool large = false;
    bool in_use = false;  // Handed out, or freed and held by a recorded stream.
    std::set<StreamQueue*> users;

    [[nodiscard]] bool whole_segment() const { return size == segment_size; }
  };
  using Blocks = std::map<std::byte*, Block>;

  struct FreeKey {
    bool large;
    StreamQueue* stream;
    std::int64_t size;
    std::byte* data;
    auto operator<=>(const FreeKey&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  /// A block that was given back and waits for the streams that were recorded on it.
  struct Parked {
    std::byte* data;
    std::vector<Mark> users;
  };

  using StatArray = c10::CachingAllocator::StatArray;
  static void grow(StatArray& stats, bool large, std::int64_t amount);
  static void shrink(StatArray& stats, bool large, std::int64_t amount);

  [[nodiscard]] Blocks::iterator find_free(std::int64_t size, bool large, StreamQueue& stream);
  [[nodiscard]] Blocks::iterator new_segment(std::int64_t size, bool large, StreamQueue& stream);
  void insert_free(Blocks::iterator block);
  void erase_free(Blocks::iterator block);
  void make_free(Blocks::iterator block);
  void unpark_reached();
  void release_idle_segments();
  void queue_poison(StreamQueue& stream, std::byte* data, std::int64_t bytes) noexcept;
  [[noreturn]] void throw_out_of_memory(std::int64_t requested, std::int64_t segment);
  void note_out_of_memory();
  [[nodiscard]] std::int64_t reserved() const;
  /// What can still be taken from the device.
  [[nodiscard]] std::int64_t available() const;

  const std::string device_name_;
  const bool poison_;
  CounterBoard& counters_;
  Monitor& monitor_;
  mutable std::mutex mutex_;
  std::int64_t capacity_;
  std::int64_t used_by_others_ = 0;
  double fraction_ = 1;
  Blocks blocks_;
  std::set<FreeKey> free_;
  std::vector<Parked> parked_;
  Stats stats_;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
