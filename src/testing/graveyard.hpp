// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Memory that was given back, for as long as queued tasks may still use it.

#include "stream_queue.hpp"

#include <offstage/base/config.hpp>

#include <cstdint>
#include <mutex>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// Unmaps memory when no task can use it any more.
///
/// Memory may be given back although nothing orders that behind its last use: that is a race, which
/// is reported, and the program must live to see the report. So memory is unmapped only after
/// everything that any stream had queued when it was given back has run. Nobody waits for that.
///
/// @par Threads
/// All members may be called concurrently.
class Graveyard {
 public:
  /// A stream whose tasks may use memory. It must outlive this object.
  void watch(StreamQueue& stream);

  /// Takes a mapping over. It is unmapped at once if all streams are idle.
  void bury(void* data, std::int64_t bytes) noexcept;

  /// Unmaps what can be.
  void sweep() noexcept;

 private:
  struct Grave {
    void* data = nullptr;
    std::int64_t bytes = 0;
    std::vector<StreamMarker> users;
  };

  void unmap_reached() noexcept;

  std::mutex mutex_;
  std::vector<StreamQueue*> streams_;
  std::vector<Grave> graves_;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
