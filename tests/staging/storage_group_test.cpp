// SPDX-License-Identifier: Apache-2.0
#include "staging/storage_group.hpp"

#include <offstage/base/bytes.hpp>
#include <offstage/base/error.hpp>

#include <ATen/ATen.h>

#include <gmock/gmock.h>

#include <array>

namespace offstage::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StagingLayout layout_of(std::vector<NamedTensor> tensors, std::int64_t chunk_bytes_max = kGiB) {
  return make_staging_layout(std::move(tensors), "vae", 512, chunk_bytes_max);
}

// case C01: tied weights are one storage.
TEST(StorageGroupTest, TensorsOfOneStorageFormOneGroupOfItsBytes) {
  const at::Tensor weight = at::rand({64, 8});
  const StagingLayout layout = layout_of({{"embedding", weight}, {"output", weight.view({8, 64})}});
  ASSERT_EQ(layout.groups.size(), 1U);
  EXPECT_EQ(layout.groups[0].bytes, 2048);
  EXPECT_THAT(layout.groups[0].members, ElementsAre(0, 1));
  EXPECT_EQ(layout.group_bytes, 2048);
}

TEST(StorageGroupTest, ATensorListedTwiceIsTakenOnce) {
  const at::Tensor weight = at::rand({16});
  const StagingLayout layout = layout_of({{"a", weight}, {"b", weight}});
  ASSERT_EQ(layout.tensors.size(), 1U);
  EXPECT_EQ(layout.tensors[0].path, "a");
}

TEST(StorageGroupTest, SeparateStoragesFormSeparateGroupsInListOrder) {
  const StagingLayout layout =
      layout_of({{"a", at::rand({100})}, {"b", at::rand({1})}, {"c", at::rand({256})}});
  ASSERT_EQ(layout.groups.size(), 3U);
  EXPECT_EQ(layout.tensors[2].group, 2U);
  EXPECT_EQ(layout.groups[0].chunk_offset, 0);
  EXPECT_EQ(layout.groups[1].chunk_offset, 512);
  EXPECT_EQ(layout.groups[2].chunk_offset, 1024);
  EXPECT_THAT(layout.chunk_bytes, ElementsAre(2048));
  EXPECT_EQ(layout.group_bytes, 400 + 4 + 1024);
  EXPECT_EQ(layout.padded_bytes(), 2048);
}

// case C12: randn(2,1).expand(2,1000) is 8 bytes, not 8000.
TEST(StorageGroupTest, AnExpandedTensorCostsItsStorage) {
  const StagingLayout layout = layout_of({{"e", at::rand({2, 1}).expand({2, 1000})}});
  EXPECT_EQ(layout.groups[0].bytes, 8);
  EXPECT_THAT(layout.tensors[0].strides, ElementsAre(1, 0));
}

// Observation O13: one row of a 1024 x 1024 float matrix is 4096 bytes, its storage 4194304.
TEST(StorageGroupTest, AViewCostsTheBytesItCoversNotItsStorage) {
  const at::Tensor matrix = at::rand({1024, 1024});
  const StagingLayout layout = layout_of({{"row", matrix[3]}});
  EXPECT_EQ(layout.groups[0].bytes, 4096);
  EXPECT_EQ(layout.tensors[0].storage_offset, 0);  // 3 * 4096 bytes is a multiple of 512.
  EXPECT_EQ(layout.groups[0].sources[0].begin, 3 * 4096);
}

TEST(StorageGroupTest, AddressesKeepTheirRemainderModuloTheAlignment) {
  const at::Tensor base = at::rand({1000});
  // 1200 bytes from the start: 176 modulo 512.
  const StagingLayout layout = layout_of({{"v", base.narrow(0, 300, 10)}});
  EXPECT_EQ(layout.tensors[0].storage_offset, 176 / 4);
  EXPECT_EQ(layout.groups[0].bytes, 176 + 40);
  EXPECT_EQ(layout.groups[0].sources[0].group_offset, 176);
}

TEST(StorageGroupTest, RelativeOffsetsInAGroupStay) {
  const at::Tensor base = at::rand({1000});
  const StagingLayout layout =
      layout_of({{"late", base.narrow(0, 500, 10)}, {"early", base.narrow(0, 200, 100)}});
  ASSERT_EQ(layout.groups.size(), 1U);
  EXPECT_EQ(layout.tensors[0].storage_offset - layout.tensors[1].storage_offset, 300);
  EXPECT_EQ(layout.groups[0].bytes, (800 % 512) + (510 - 200) * 4);
}

// Observation O12, P04: overlapping windows on one mapping are different storages.
TEST(StorageGroupTest, OverlappingWindowsOfDifferentStoragesAreOneGroup) {
  std::vector<float> mapping(64);
  const at::Tensor low = at::from_blob(mapping.data(), {32});
  const at::Tensor high = at::from_blob(mapping.data() + 16, {32});
  const at::Tensor apart = at::from_blob(mapping.data() + 48, {16});
  const StagingLayout layout = layout_of({{"low", low}, {"high", high}, {"apart", apart}});
  ASSERT_EQ(layout.groups.size(), 2U);
  EXPECT_EQ(layout.tensors[0].group, layout.tensors[1].group);
  EXPECT_EQ(layout.tensors[1].storage_offset - layout.tensors[0].storage_offset, 16);
  EXPECT_EQ(layout.groups[0].sources.size(), 2U);
}

// The second window ends inside the first; the third overlaps with the first only.
TEST(StorageGroupTest, AWindowBehindAShorterOneStillBelongsToTheLongOneAroundIt) {
  std::vector<float> mapping(64);
  const at::Tensor around = at::from_blob(mapping.data(), {48});
  const at::Tensor inside = at::from_blob(mapping.data() + 8, {8});
  const at::Tensor behind = at::from_blob(mapping.data() + 32, {4});
  const StagingLayout layout =
      layout_of({{"behind", behind}, {"inside", inside}, {"around", around}});
  ASSERT_EQ(layout.groups.size(), 1U);
  EXPECT_EQ(layout.groups[0].bytes - layout.tensors[2].storage_offset * 4, 48 * 4);
  EXPECT_THAT(layout.groups[0].members, ElementsAre(0, 1, 2)) << "in the order of the list";
}

TEST(StorageGroupTest, OverlappingWindowsKeepTheRemainderOfTheirAddresses) {
  alignas(512) std::array<float, 128> mapping{};
  const at::Tensor low = at::from_blob(mapping.data() + 40, {32});
  const at::Tensor high = at::from_blob(mapping.data() + 56, {32});
  const StagingLayout layout = layout_of({{"low", low}, {"high", high}});
  EXPECT_EQ(layout.tensors[0].storage_offset, 40);
  EXPECT_EQ(layout.tensors[1].storage_offset, 56);
  EXPECT_EQ(layout.groups[0].bytes, (40 + 48) * 4);
}

TEST(StorageGroupTest, GroupsAreInTheOrderOfTheListAndNotOfTheAddresses) {
  std::vector<float> mapping(64);
  const StagingLayout layout = layout_of({{"high", at::from_blob(mapping.data() + 32, {8})},
                                          {"low", at::from_blob(mapping.data(), {8})}});
  ASSERT_EQ(layout.groups.size(), 2U);
  EXPECT_EQ(layout.tensors[0].group, 0U);
  EXPECT_EQ(layout.tensors[1].group, 1U);
}

// case C09, observation O14: empty tensors look alike, and cost nothing.
TEST(StorageGroupTest, EmptyTensorsNeverMergeAndCostNoBytes) {
  const StagingLayout layout = layout_of({{"a", at::rand({0, 7})}, {"b", at::rand({0})}});
  EXPECT_EQ(layout.groups.size(), 2U);
  EXPECT_EQ(layout.padded_bytes(), 0);
  EXPECT_TRUE(layout.chunk_bytes.empty());
}

TEST(StorageGroupTest, ChunksAreFilledUpToTheirBoundAndNoStorageIsSplit) {
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 5; ++i) tensors.push_back({std::to_string(i), at::zeros({1024}, at::kByte)});
  tensors.push_back({"large", at::zeros({5000}, at::kByte)});
  tensors.push_back({"last", at::zeros({1}, at::kByte)});
  const StagingLayout layout = layout_of(std::move(tensors), 2048);
  EXPECT_THAT(layout.chunk_bytes, ElementsAre(2048, 2048, 1024, 5120, 512));
  EXPECT_EQ(layout.groups[5].chunk, 3U);
  EXPECT_EQ(layout.groups[6].chunk, 4U);
}

// Observation O17: two dtypes on one storage.
TEST(StorageGroupTest, ViewsOfAnotherDtypeShareTheGroup) {
  const at::Tensor weight = at::rand({16});
  const StagingLayout layout = layout_of({{"f", weight}, {"i", weight.view(at::kInt)[7]}});
  ASSERT_EQ(layout.groups.size(), 1U);
  EXPECT_EQ(layout.tensors[1].storage_offset, 7);
}

TEST(StorageGroupTest, AdoptedGroupsAreChunksOfTheirOwnBehindTheOthers) {
  alignas(512) static std::array<float, 256> pinned{};
  const auto is_pinned = [](const void* address) {
    return address >= pinned.data() && address < pinned.data() + pinned.size();
  };
  const StagingLayout layout =
      make_staging_layout({{"a", at::from_blob(pinned.data(), {100})},
                           {"b", at::rand({10})},
                           {"c", at::from_blob(pinned.data() + 128, {2}).narrow(0, 1, 1)},
                           {"d", at::rand({200})}},
                          "vae", 512, kGiB, is_pinned);
  ASSERT_EQ(layout.groups.size(), 4U);
  EXPECT_THAT(layout.chunk_bytes, ElementsAre(512 + 1024, 400, 8));
  EXPECT_EQ(layout.groups[0].adopted, reinterpret_cast<std::byte*>(pinned.data()));
  EXPECT_EQ(layout.groups[0].chunk, 1U);
  EXPECT_EQ(layout.groups[1].adopted, nullptr);
  EXPECT_EQ(layout.groups[2].adopted, reinterpret_cast<std::byte*>(pinned.data() + 128));
  EXPECT_EQ(layout.groups[2].chunk, 2U);
  EXPECT_EQ(layout.groups[3].chunk_offset, 512);
  EXPECT_EQ(layout.group_bytes, 400 + 40 + 8 + 800);
}

TEST(StorageGroupTest, NothingIsAdoptedUnlessAskedFor) {
  alignas(512) static std::array<float, 8> pinned{};
  EXPECT_EQ(layout_of({{"a", at::from_blob(pinned.data(), {8})}}).groups[0].adopted, nullptr);
}

TEST(StorageGroupTest, MisalignedWindowsThatOverlapAreRefusedByName) {
  std::vector<char> mapping(64);
  const at::Tensor bytes = at::from_blob(mapping.data(), {40}, at::kByte);
  const at::Tensor odd = at::from_blob(mapping.data() + 1, {4}, at::kFloat);
  try {
    static_cast<void>(layout_of({{"bytes", bytes}, {"odd", odd}}));
    FAIL() << "expected a StagingError";
  } catch (const StagingError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'odd'"));
    EXPECT_THAT(error.what(), HasSubstr("multiple of its item size, 4 bytes"));
  }
}

}  // namespace
}  // namespace offstage::detail
