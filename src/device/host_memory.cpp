// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/host_memory.hpp>

#include <cerrno>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

OFFSTAGE_NAMESPACE_BEGIN

std::int64_t host_page_bytes() noexcept {
  static const std::int64_t bytes = ::sysconf(_SC_PAGESIZE);
  return bytes;
}

std::int64_t HostMemory::taken_bytes(std::int64_t bytes) const noexcept {
  return align_up(bytes, host_page_bytes());
}

void* HostMemory::allocate(std::int64_t bytes) {
  if (bytes <= 0) {
    throw InvalidArgument("host memory: bytes must be more than 0, got " + std::to_string(bytes));
  }
  void* data = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw HostMemoryError("host memory: mapping " + std::to_string(bytes) +
                          " bytes failed: " + std::strerror(errno));
  }
  return data;
}

void HostMemory::free(void* data, std::int64_t bytes) noexcept {
  ::munmap(data, static_cast<std::size_t>(bytes));
}

OFFSTAGE_NAMESPACE_END
