// SPDX-License-Identifier: Apache-2.0
#include "allocation_counter.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local std::int64_t allocations = 0;

void* counted(std::size_t bytes) {
  ++allocations;
  void* data = std::malloc(bytes == 0 ? 1 : bytes);  // NOLINT: this is what new is made of.
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes);
}
void* operator new[](std::size_t bytes) {
  return counted(bytes);
}
void operator delete(void* data) noexcept {
  std::free(data);
}
void operator delete[](void* data) noexcept {
  std::free(data);
}
void operator delete(void* data, std::size_t) noexcept {
  std::free(data);
}
void operator delete[](void* data, std::size_t) noexcept {
  std::free(data);
}

namespace offstage {

std::int64_t allocations_of_this_thread() noexcept {
  return allocations;
}

}  // namespace offstage
