// SPDX-License-Identifier: Apache-2.0
#include "staging/host_arena.hpp"

#include <offstage/base/bytes.hpp>
#include <offstage/device/registered_host_memory.hpp>

#include <gmock/gmock.h>

#include <cstring>
#include <utility>

namespace offstage::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(ChunkPlacementTest, ChunksLieSideBySide) {
  const std::vector<NewChunk> chunks = {{512, true}, {1024, true}, {512, true}};
  const ChunkPlacement placement = place_chunks(chunks, kGiB);
  EXPECT_THAT(placement.offsets, ElementsAre(0, 512, 1536));
  EXPECT_EQ(placement.bytes, 2048);
  EXPECT_THAT(placement.slices, ElementsAre(FieldsAre(0, 3, 2048)));
}

TEST(ChunkPlacementTest, PinnedAndPageableChunksShareNoPage) {
  const std::vector<NewChunk> chunks = {
      {512, false}, {512, true}, {512, true}, {512, false}, {512, false}};
  const ChunkPlacement placement = place_chunks(chunks, kGiB);
  EXPECT_THAT(placement.offsets, ElementsAre(0, 4096, 4608, 8192, 8704));
  EXPECT_THAT(placement.slices, ElementsAre(FieldsAre(1, 3, 1024)));
}

TEST(ChunkPlacementTest, ASliceIsFilledUpToItsBoundExactly) {
  const std::vector<NewChunk> chunks = {{512, true}, {512, true}, {512, true}};
  EXPECT_THAT(place_chunks(chunks, 1024).slices,
              ElementsAre(FieldsAre(0, 2, 1024), FieldsAre(2, 3, 512)));
  EXPECT_THAT(place_chunks(chunks, 1023).slices,
              ElementsAre(FieldsAre(0, 1, 512), FieldsAre(1, 2, 512), FieldsAre(2, 3, 512)));
}

TEST(ChunkPlacementTest, NoChunksTakeNothing) {
  const ChunkPlacement placement = place_chunks({}, kGiB);
  EXPECT_EQ(placement.bytes, 0);
  EXPECT_THAT(placement.slices, IsEmpty());
}

// An arena grows: chunks that are there keep their places, their bytes and their state.
TEST(HostArenaTest, ChunksCanBeAddedLater) {
  std::vector<std::int64_t> pinned;
  std::vector<std::int64_t> unpinned;
  const auto memory = std::make_shared<RegisteredHostMemory>(RegisteredHostMemoryOptions{
      .pin = [&](void*, std::int64_t bytes) { pinned.push_back(bytes); },
      .unpin = [&](void*, std::int64_t bytes) { unpinned.push_back(bytes); }});
  const auto ledger = std::make_shared<PinnedLedger>();
  {
    const auto context = DeviceContext::create(c10::Device(c10::kCPU), {.pinned_ledger = ledger});
    const auto arena = c10::make_intrusive<HostArena>(context, "vae");
    const std::vector<NewChunk> first = {{8192, true}, {512, false}};
    arena->add_chunks(memory, first, 512);
    PinnedLedger::Promise promise =
        ledger->set_aside(PinnedBudget(), {}, [](const auto&) { return std::int64_t{3 * 4096}; });
    arena->pin(0, promise);
    std::byte* const data = arena->chunk(0);
    std::memset(data, 7, 8192);

    arena->add_chunks(memory, std::vector<NewChunk>{{4096, true}}, 512);
    EXPECT_EQ(arena->chunk_count(), 3U);
    EXPECT_EQ(arena->chunk(0), data);
    EXPECT_EQ(data[8191], std::byte{7});
    EXPECT_EQ(arena->slices()[1].end_chunk, 3U);
    EXPECT_EQ(arena->pinned_bytes(), 8192);
    arena->pin(1, promise);
    EXPECT_EQ(arena->pinned_bytes(), 8192 + 4096);
    EXPECT_EQ(arena->bytes(), 8192 + 512 + 4096);
    EXPECT_EQ(arena->taken_bytes(), 3 * 4096 + 4096);
    EXPECT_EQ(ledger->pinned_bytes(), 3 * 4096);
    EXPECT_EQ(promise.bytes(), 0);
  }
  EXPECT_THAT(pinned, ElementsAre(8192, 4096));
  EXPECT_THAT(unpinned, ElementsAre(8192, 4096));
  EXPECT_EQ(ledger->pinned_bytes(), 0);
}

}  // namespace
}  // namespace offstage::detail
