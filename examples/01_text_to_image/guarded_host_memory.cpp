// SPDX-License-Identifier: Apache-2.0
#include "guarded_host_memory.hpp"

#include <csignal>
#include <cstddef>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace text_to_image {

namespace {

struct sigaction previous_action {};

/// Nothing but async-signal-safe calls here.
void report_access(int /*signal*/) {
  constexpr std::string_view kText =
      "text_to_image: a host master was accessed while its component ran\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(GuardedHostMemory::kExitCode);
}

}  // namespace

GuardedHostMemory::GuardedHostMemory(std::shared_ptr<offstage::HostMemory> from)
    : from_(std::move(from)) {}

GuardedHostMemory::~GuardedHostMemory() = default;

void* GuardedHostMemory::allocate(std::int64_t bytes) {
  void* const data = from_->allocate(bytes);
  const std::lock_guard lock(mutex_);
  ranges_[data] = bytes;
  return data;
}

void GuardedHostMemory::free(void* data, std::int64_t bytes) noexcept {
  {
    const std::lock_guard lock(mutex_);
    ranges_.erase(data);
  }
  from_->free(data, bytes);
}

void GuardedHostMemory::forbid() {
  struct sigaction action {};
  action.sa_handler = report_access;
  ::sigaction(SIGSEGV, &action, &previous_action);
  protect(PROT_NONE);
}

void GuardedHostMemory::allow() noexcept {
  protect(PROT_READ | PROT_WRITE);
  ::sigaction(SIGSEGV, &previous_action, nullptr);
}

void GuardedHostMemory::protect(int how) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [data, bytes] : ranges_) {
    ::mprotect(data, static_cast<std::size_t>(bytes), how);
  }
}

std::int64_t GuardedHostMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  std::int64_t sum = 0;
  for (const auto& range : ranges_) sum += range.second;
  return sum;
}

}  // namespace text_to_image
