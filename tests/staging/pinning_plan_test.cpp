// SPDX-License-Identifier: Apache-2.0
#include "staging/pinning_plan.hpp"

#include <offstage/device/registered_host_memory.hpp>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <gmock/gmock.h>

namespace offstage::detail {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kPage = 4096;

/// Pins whole allocations, each of which takes twice its size.
class DoublingHostMemory final : public HostMemory {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "doubling"; }
  [[nodiscard]] bool pins() const noexcept override { return true; }
  [[nodiscard]] std::int64_t taken_bytes(std::int64_t bytes) const noexcept override {
    return 2 * bytes;
  }
  void pin(void* /*data*/, std::int64_t /*bytes*/) override {}
  void unpin(void* /*data*/, std::int64_t /*bytes*/) override {}
};

RegisteredHostMemory sliced(std::int64_t slice_bytes_max) {
  return RegisteredHostMemory({.pin = [](void*, std::int64_t) {},
                               .unpin = [](void*, std::int64_t) {},
                               .slice_bytes_max = slice_bytes_max});
}

std::vector<NewChunk> chunks_of(const std::vector<std::int64_t>& bytes) {
  std::vector<NewChunk> chunks;
  for (const std::int64_t each : bytes) chunks.push_back({each, true});
  return chunks;
}

std::vector<bool> flags_of(const std::vector<NewChunk>& chunks) {
  std::vector<bool> flags;
  for (const NewChunk& chunk : chunks) flags.push_back(chunk.pin);
  return flags;
}

TEST(PinningPlanTest, PinningCostsThePagesOfEachSlice) {
  const auto chunks = chunks_of({512, 512, 512});
  EXPECT_EQ(pinning_cost(chunks, sliced(kGiB)), kPage);
  EXPECT_EQ(pinning_cost(chunks, sliced(512)), 3 * kPage);
  EXPECT_EQ(pinning_cost(chunks, DoublingHostMemory()), 3 * 1024);
  EXPECT_EQ(pinning_cost({{512, false}, {512, true}}, DoublingHostMemory()), 1024);
}

TEST(PinningPlanTest, TheLargestChunksThatFitAreChosenAndOfEqualOnesTheFirst) {
  auto chunks = chunks_of({kPage, 2 * kPage, 3 * kPage, 2 * kPage});
  EXPECT_EQ(choose_largest(chunks, sliced(kGiB), 5 * kPage), 5 * kPage);
  EXPECT_THAT(flags_of(chunks), ElementsAre(false, true, true, false));
  EXPECT_EQ(choose_largest(chunks, sliced(kGiB), 2 * kPage + 1), 2 * kPage);
  EXPECT_THAT(flags_of(chunks), ElementsAre(false, true, false, false));
  EXPECT_EQ(choose_largest(chunks, sliced(kGiB), kPage - 1), 0);
  EXPECT_THAT(flags_of(chunks), ElementsAre(false, false, false, false));
}

TEST(PinningPlanTest, ChosenIsByWhatIsTaken) {
  auto chunks = chunks_of({512, 1024});
  EXPECT_EQ(choose_largest(chunks, DoublingHostMemory(), 2047), 1024);
  EXPECT_THAT(flags_of(chunks), ElementsAre(true, false));
}

TEST(PinningPlanTest, ReleasedAreWholeStoragesOfTheHeapThatNobodyElseHolds) {
  const auto layout_of = [](std::vector<NamedTensor> tensors) {
    return make_staging_layout(std::move(tensors), "vae", 512, kGiB);
  };
  const at::Tensor weight = at::rand({1000});
  EXPECT_EQ(released_bytes(layout_of({{"w", weight}})), 4000);
  EXPECT_EQ(released_bytes(layout_of({{"w", weight}, {"again", weight}})), 4000);
  {
    const at::Tensor tied = weight.view({10, 100});
    EXPECT_EQ(released_bytes(layout_of({{"w", weight}, {"tied", tied}})), 4000);
    EXPECT_EQ(released_bytes(layout_of({{"w", weight}})), 0) << "tied holds it";
  }
  at::Tensor row = at::rand({10, 100})[3];
  EXPECT_EQ(released_bytes(layout_of({{"row", row}})), 0) << "a view holds its base";
  {
    const c10::InferenceMode views_hold_no_base;
    row = at::rand({10, 100})[3];
  }
  EXPECT_EQ(released_bytes(layout_of({{"row", row}})), 4000) << "all of it, not what is covered";
  std::vector<float> others(10);
  EXPECT_EQ(released_bytes(layout_of({{"o", at::from_blob(others.data(), {10})}})), 0);
  EXPECT_EQ(released_bytes(layout_of({{"empty", at::rand({0})}})), 0);
}

}  // namespace
}  // namespace offstage::detail
