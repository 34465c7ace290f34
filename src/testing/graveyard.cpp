// SPDX-License-Identifier: Apache-2.0
#include "graveyard.hpp"

#include <algorithm>
#include <sys/mman.h>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

void Graveyard::watch(StreamQueue& stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(&stream);
}

void Graveyard::bury(void* data, std::int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  Grave grave{data, bytes, {}};
  for (StreamQueue* const stream : streams_) {
    const StreamMarker marker = stream->record();
    if (!marker.reached()) grave.users.push_back(marker);
  }
  graves_.push_back(std::move(grave));
  unmap_reached();
}

void Graveyard::sweep() noexcept {
  const std::lock_guard lock(mutex_);
  unmap_reached();
}

void Graveyard::unmap_reached() noexcept {
  std::erase_if(graves_, [](const Grave& grave) {
    const bool reached =
        std::ranges::all_of(grave.users, [](const StreamMarker& user) { return user.reached(); });
    if (reached) ::munmap(grave.data, static_cast<std::size_t>(grave.bytes));
    return reached;
  });
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
