// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/registered_host_memory.hpp>

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

RegisteredHostMemoryOptions checked(RegisteredHostMemoryOptions options) {
  if (!options.pin || !options.unpin) {
    throw InvalidArgument("host memory '" + options.name + "': pin and unpin must be set");
  }
  if (options.slice_bytes_max <= 0) {
    throw InvalidArgument("host memory '" + options.name +
                          "': slice_bytes_max must be more than 0, got " +
                          std::to_string(options.slice_bytes_max));
  }
  return options;
}

void require_success(int result, const char* call, std::int64_t bytes) {
  if (result == 0) return;
  throw HostMemoryError("host memory: " + std::string(call) + " of " + std::to_string(bytes) +
                        " bytes failed: " + std::strerror(errno));
}

}  // namespace

RegisteredHostMemory::RegisteredHostMemory(RegisteredHostMemoryOptions options)
    : options_(checked(std::move(options))) {}

std::shared_ptr<HostMemory> locked_host_memory() {
  return std::make_shared<RegisteredHostMemory>(RegisteredHostMemoryOptions{
      .name = "locked",
      .pin =
          [](void* data, std::int64_t bytes) {
            require_success(::mlock(data, static_cast<std::size_t>(bytes)), "mlock", bytes);
          },
      .unpin =
          [](void* data, std::int64_t bytes) {
            require_success(::munlock(data, static_cast<std::size_t>(bytes)), "munlock", bytes);
          },
      .bound_by_memlock = true});
}

OFFSTAGE_NAMESPACE_END
