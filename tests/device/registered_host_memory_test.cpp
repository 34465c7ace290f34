// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>
#include <offstage/device/registered_host_memory.hpp>

#include <gmock/gmock.h>

#include <utility>
#include <vector>

namespace offstage {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

using Ranges = std::vector<std::pair<void*, std::int64_t>>;

RegisteredHostMemoryOptions noting(Ranges& pinned, Ranges& unpinned) {
  return {.pin = [&](void* data, std::int64_t bytes) { pinned.emplace_back(data, bytes); },
          .unpin = [&](void* data, std::int64_t bytes) { unpinned.emplace_back(data, bytes); }};
}

TEST(RegisteredHostMemoryTest, PinsAndUnpinsThroughItsFunctions) {
  Ranges pinned;
  Ranges unpinned;
  RegisteredHostMemory memory(noting(pinned, unpinned));
  auto* const data = static_cast<std::byte*>(memory.allocate(3 * host_page_bytes()));
  EXPECT_EQ(data[0], std::byte{0});
  memory.pin(data + host_page_bytes(), 100);
  memory.unpin(data + host_page_bytes(), 100);
  memory.free(data, 3 * host_page_bytes());
  EXPECT_THAT(pinned, ElementsAre(Pair(data + host_page_bytes(), 100)));
  EXPECT_EQ(unpinned, pinned);
}

TEST(RegisteredHostMemoryTest, TellsWhatItIs) {
  Ranges ranges;
  RegisteredHostMemoryOptions options = noting(ranges, ranges);
  const RegisteredHostMemory plain(options);
  EXPECT_EQ(plain.name(), "registered");
  EXPECT_TRUE(plain.pins());
  EXPECT_FALSE(plain.bound_by_memlock());
  EXPECT_EQ(plain.slice_bytes_max(), kGiB);
  EXPECT_EQ(plain.taken_bytes(1), host_page_bytes());
  EXPECT_EQ(plain.taken_bytes(host_page_bytes()), host_page_bytes());
  options.name = "mine";
  options.slice_bytes_max = 8192;
  options.bound_by_memlock = true;
  const RegisteredHostMemory other(options);
  EXPECT_EQ(other.name(), "mine");
  EXPECT_TRUE(other.bound_by_memlock());
  EXPECT_EQ(other.slice_bytes_max(), 8192);
}

TEST(RegisteredHostMemoryTest, NeedsItsFunctionsAndSlicesOfSomeSize) {
  Ranges ranges;
  RegisteredHostMemoryOptions options = noting(ranges, ranges);
  options.pin = nullptr;
  EXPECT_THROW(RegisteredHostMemory{options}, InvalidArgument);
  options = noting(ranges, ranges);
  options.unpin = nullptr;
  EXPECT_THROW(RegisteredHostMemory{options}, InvalidArgument);
  options = noting(ranges, ranges);
  options.slice_bytes_max = 0;
  EXPECT_THROW(RegisteredHostMemory{options}, InvalidArgument);
}

TEST(LockedHostMemoryTest, LocksPagesAndIsBoundByTheLimitOfLockedMemory) {
  const auto memory = locked_host_memory();
  EXPECT_EQ(memory->name(), "locked");
  EXPECT_TRUE(memory->bound_by_memlock());
  void* const data = memory->allocate(host_page_bytes());
  EXPECT_NO_THROW(memory->pin(data, host_page_bytes()));
  EXPECT_NO_THROW(memory->unpin(data, host_page_bytes()));
  memory->free(data, host_page_bytes());
}

}  // namespace
}  // namespace offstage
