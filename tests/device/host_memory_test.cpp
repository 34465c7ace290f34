// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/host_memory.hpp>

#include <gmock/gmock.h>

#include <cstdint>
#include <unistd.h>

namespace offstage {
namespace {

using ::testing::HasSubstr;

TEST(PageableHostMemoryTest, GivesZeroedMemoryThatStartsOnAPage) {
  PageableHostMemory memory;
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::int64_t bytes = 3 * page + 1;
  auto* data = static_cast<unsigned char*>(memory.allocate(bytes));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(page), 0U);
  EXPECT_EQ(data[0], 0);
  EXPECT_EQ(data[bytes - 1], 0);
  data[bytes - 1] = 7;
  EXPECT_EQ(data[bytes - 1], 7);
  memory.free(data, bytes);
}

TEST(PageableHostMemoryTest, SaysThatItDoesNotPin) {
  PageableHostMemory memory;
  EXPECT_FALSE(memory.pins());
  EXPECT_EQ(memory.name(), "pageable");
}

TEST(PageableHostMemoryTest, TakesWholePages) {
  const PageableHostMemory memory;
  EXPECT_EQ(host_page_bytes(), ::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(memory.taken_bytes(1), host_page_bytes());
  EXPECT_EQ(memory.taken_bytes(host_page_bytes()), host_page_bytes());
  EXPECT_EQ(memory.taken_bytes(host_page_bytes() + 1), 2 * host_page_bytes());
  EXPECT_FALSE(memory.bound_by_memlock());
}

TEST(PageableHostMemoryTest, RefusesSizesThatAreNoSizes) {
  PageableHostMemory memory;
  EXPECT_THROW(static_cast<void>(memory.allocate(0)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(memory.allocate(-1)), InvalidArgument);
}

TEST(PageableHostMemoryTest, SaysHowMuchCouldNotBeHad) {
  PageableHostMemory memory;
  try {
    static_cast<void>(memory.allocate(std::int64_t{1} << 62));
    FAIL() << "no machine has that much";
  } catch (const HostMemoryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("4611686018427387904 bytes"));
  }
}

}  // namespace
}  // namespace offstage
