// SPDX-License-Identifier: Apache-2.0
// The system's refusal to lock memory. Not under the sanitizers, which lock none.
#include <offstage/base/error.hpp>
#include <offstage/device/registered_host_memory.hpp>

#include <gmock/gmock.h>

namespace offstage {
namespace {

using ::testing::HasSubstr;

TEST(LockedHostMemoryTest, ARefusalSaysWhy) {
  const auto memory = locked_host_memory();
  void* const data = memory->allocate(host_page_bytes());
  memory->free(data, host_page_bytes());
  try {
    memory->pin(data, host_page_bytes());
    FAIL() << "there is no such memory any more";
  } catch (const HostMemoryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("mlock of " + std::to_string(host_page_bytes()) +
                                        " bytes failed: Cannot allocate memory"));
  }
}

}  // namespace
}  // namespace offstage
