// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/cuda_host_registration.hpp>
#include <offstage/device/registered_host_memory.hpp>

#include <dlfcn.h>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

template <class Function>
bool look_up(const char* name, Function*& function) noexcept {
  function = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

}  // namespace

std::optional<CudaHostRegistration> CudaHostRegistration::find() noexcept {
  CudaHostRegistration found;
  if (look_up("cudaHostRegister", found.register_) &&
      look_up("cudaHostUnregister", found.unregister_) &&
      look_up("cudaGetErrorString", found.error_string_) &&
      look_up("cudaGetLastError", found.last_error_)) {
    return found;
  }
  return std::nullopt;
}

void CudaHostRegistration::pin(void* data, std::int64_t bytes) const {
  constexpr unsigned kPortable = 1;  // cudaHostRegisterPortable: pinned for every context.
  require_success(register_(data, static_cast<std::size_t>(bytes), kPortable), "cudaHostRegister",
                  bytes);
}

void CudaHostRegistration::unpin(void* data, std::int64_t bytes) const {
  require_success(unregister_(data), "cudaHostUnregister", bytes);
}

void CudaHostRegistration::require_success(int result, const char* call, std::int64_t bytes) const {
  if (result == 0) return;
  static_cast<void>(last_error_());
  const char* const text = error_string_(result);
  throw HostMemoryError("host memory: " + std::string(call) + " of " + std::to_string(bytes) +
                        " bytes failed: " + (text == nullptr ? "no text" : text) + " (error " +
                        std::to_string(result) + ")");
}

std::shared_ptr<HostMemory> CudaHostRegistration::host_memory(std::int64_t slice_bytes_max) const {
  return std::make_shared<RegisteredHostMemory>(RegisteredHostMemoryOptions{
      .name = "cuda_registered",
      .pin = [self = *this](void* data, std::int64_t bytes) { self.pin(data, bytes); },
      .unpin = [self = *this](void* data, std::int64_t bytes) { self.unpin(data, bytes); },
      .slice_bytes_max = slice_bytes_max});
}

OFFSTAGE_NAMESPACE_END
