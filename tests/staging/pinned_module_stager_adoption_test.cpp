// SPDX-License-Identifier: Apache-2.0
// Tensors in memory that is pinned already stay there, if they are told to.
#include "failing_device_guard.hpp"
#include "staging_fixture.hpp"

#include <cstring>

namespace offstage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const StagerOptions kAdopting = {.name = "vae", .pinned_sources = PinnedSources::kAdopt};

class PinnedModuleStagerAdoptionTest : public StagingTest {
 protected:
  void TearDown() override {
    driver.recover();
    StagingTest::TearDown();
  }

  static at::Tensor pinned_range(std::int64_t elements) {
    const auto options = at::TensorOptions(at::kFloat).pinned_memory(true);
    return at::empty({elements}, options).copy_(at::arange(elements, at::kFloat));
  }
  static c10::weak_intrusive_ptr<c10::StorageImpl> weak_storage(const at::Tensor& tensor) {
    return c10::weak_intrusive_ptr<c10::StorageImpl>(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
            tensor.storage().unsafeGetStorageImpl()));
  }
  std::string refusal(const std::vector<NamedTensor>& tensors) {
    try {
      stage(tensors, kAdopting);
    } catch (const StagingError& error) {
      return error.what();
    }
    return "staged";
  }

  FailingDeviceGuard& driver = FailingDeviceGuard::install(simulator.device().type());
};

TEST_F(PinnedModuleStagerAdoptionTest, AnAdoptedTensorStaysWhereItIsAndTakesNoHostMemory) {
  const at::Tensor weight = pinned_range(300);
  const void* const source = weight.data_ptr();
  const auto pinned = simulator.pinned_bytes();
  const auto stager = stage({{"w", weight}}, kAdopting);
  EXPECT_EQ(weight.data_ptr(), source);
  EXPECT_EQ(weight.storage().nbytes(), 1200U);
  EXPECT_EQ(simulator.pinned_bytes(), pinned);
  EXPECT_EQ(stager->host_bytes(), 0);
  EXPECT_EQ(stager->adopted_bytes(), 1200);
  EXPECT_EQ(stager->pinned_bytes(), 1200);
  EXPECT_EQ(stager->bytes(), 1200)
      << "exactly the storage: what lies behind it is not ours to copy";
  for (int round = 0; round < 2; ++round) {
    const auto before = counters();
    stager->load();
    EXPECT_EQ((counters() - before).host_waits, 0);
    EXPECT_EQ((counters() - before).copies_h2d, 1);
    EXPECT_EQ((counters() - before).bytes_h2d, 1200);
    EXPECT_TRUE(at::equal(weight.cpu(), at::arange(300, at::kFloat)));
    stager->offload();
    EXPECT_EQ(weight.data_ptr(), source);
    EXPECT_TRUE(at::equal(weight, at::arange(300, at::kFloat)));
  }
}

TEST_F(PinnedModuleStagerAdoptionTest, TheSourceLivesUntilItsTensorsAndTheCopiesAreDone) {
  at::Tensor weight = pinned_range(300);
  const auto source = weak_storage(weight);
  auto stager = stage({{"w", weight}}, kAdopting);
  EXPECT_FALSE(source.expired());
  stager->load();
  stager->offload();
  stager.reset();
  EXPECT_FALSE(source.expired());
  EXPECT_TRUE(at::equal(weight, at::arange(300, at::kFloat)));
  const auto before = counters();
  weight = at::Tensor();
  EXPECT_EQ((counters() - before).host_waits, 1) << "for the copy that read it";
  EXPECT_TRUE(source.expired());
}

// case C22: while the copy is held, neither the stager's nor the tensor's end frees the source.
TEST_F(PinnedModuleStagerAdoptionTest, DestructionUnderARunningCopyDoesNotFreeTheSource) {
  at::Tensor weight = pinned_range(300);
  const auto source = weak_storage(weight);
  at::Tensor on_device;
  {
    const auto copies_held = simulator.hold(context->copy_stream());
    auto stager = stage({{"w", weight}}, kAdopting);
    stager->load();
    on_device = weight.detach();
    stager.reset();
    EXPECT_FALSE(source.expired());
  }
  EXPECT_TRUE(at::equal(on_device.cpu(), at::arange(300, at::kFloat)));
}

TEST_F(PinnedModuleStagerAdoptionTest, AViewIsAdoptedInPlaceAndTheBytesInFrontOfItAreLeftAlone) {
  const at::Tensor big = pinned_range(1000);
  const at::Tensor view = big.narrow(0, 300, 10);
  const auto stager = stage({{"v", view}}, kAdopting);
  EXPECT_EQ(view.data_ptr(), big.data_ptr<float>() + 300);
  EXPECT_EQ(stager->adopted_bytes(), 176 + 40) << "1200 bytes are 176 modulo 512";
  EXPECT_TRUE(at::equal(big, at::arange(1000, at::kFloat)));
  stager->load();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data_ptr()) % 512, 176U);
  EXPECT_TRUE(at::equal(view.cpu(), at::arange(300, 310, at::kFloat)));
}

TEST_F(PinnedModuleStagerAdoptionTest, PageableTensorsBesideThemAreCopiedAndAliasesStayAliases) {
  const at::Tensor pinned = pinned_range(100);
  const at::Tensor tied = pinned.view({10, 10}).t();
  const at::Tensor pageable = at::arange(50, at::kInt);
  const at::Tensor on_device = at::arange(60, at::kInt).to(device());
  const void* const source = pinned.data_ptr();
  const auto stager =
      stage({{"a", pageable}, {"b", pinned}, {"c", tied}, {"d", on_device}}, kAdopting);
  EXPECT_EQ(stager->adopted_bytes(), 400);
  EXPECT_EQ(stager->pinned_bytes(), 400 + 1024);
  EXPECT_EQ(stager->chunk_count(), 2U);
  EXPECT_EQ(tied.data_ptr(), source);
  stager->load();
  EXPECT_TRUE(tied.is_alias_of(pinned));
  EXPECT_TRUE(at::equal(tied.cpu(), at::arange(100, at::kFloat).view({10, 10}).t()));
  EXPECT_TRUE(at::equal(pageable.cpu(), at::arange(50, at::kInt)));
  EXPECT_TRUE(at::equal(on_device.cpu(), at::arange(60, at::kInt)));
}

TEST_F(PinnedModuleStagerAdoptionTest, MastersOfAStagerThatIsGoneAreAdoptedWithoutACopy) {
  const auto tensors = numbered_tensors(3, 128);
  stage(tensors).reset();
  const void* const master = tensors[1].tensor.data_ptr();
  const auto pinned = simulator.pinned_bytes();
  const auto stager = stage(tensors, kAdopting);
  EXPECT_EQ(tensors[1].tensor.data_ptr(), master);
  EXPECT_EQ(simulator.pinned_bytes(), pinned);
  EXPECT_EQ(stager->host_bytes(), 0);
  stager->load();
  expect_numbered(tensors);
}

TEST_F(PinnedModuleStagerAdoptionTest, OnlyTheDevicesOwnPinnedMemoryCountsAndNothingOnTheCpu) {
  const at::Tensor weight = pinned_range(10);
  const void* const source = weight.data_ptr();
  context = DeviceContext::create(c10::Device(c10::kCPU), {.sink = sink});
  const auto stager = stage({{"w", weight}}, kAdopting);
  EXPECT_EQ(stager->adopted_bytes(), 0);
  EXPECT_NE(weight.data_ptr(), source);
}

TEST_F(PinnedModuleStagerAdoptionTest, PinnedMemoryThatIsNotAlignedIsRefusedByName) {
  const at::Tensor big = pinned_range(1000);
  const at::Tensor odd = at::from_blob(big.data_ptr<float>() + 4, {10}, at::kFloat);
  const at::Tensor other = pinned_range(8);
  const void* const before = other.data_ptr();
  EXPECT_EQ(refusal({{"other", other}, {"odd", odd}}),
            "component 'vae': tensor 'odd' lies in pinned memory that cannot be adopted: its "
            "storage does not start at a multiple of 512 bytes");
  EXPECT_EQ(other.data_ptr(), before);
  EXPECT_NO_THROW(
      stage({{"odd", odd}}, {.pinned_sources = PinnedSources::kAdopt, .alignment = 16}));
}

TEST_F(PinnedModuleStagerAdoptionTest, MemoryOfWhichOnlyAPartIsPinnedIsRefusedByName) {
  const auto memory = simulator.host_memory();
  void* const data = memory->allocate(8192);
  memory->pin(data, 4096);
  const at::Tensor half = at::from_blob(data, {8192}, at::kByte);
  EXPECT_THAT(refusal({{"half", half}}),
              AllOf(HasSubstr("'half'"), HasSubstr("only a part of it is pinned")));
  memory->unpin(data, 4096);
  memory->pin(static_cast<std::byte*>(data) + 4096, 4096);
  EXPECT_THAT(refusal({{"half", half}}), HasSubstr("only a part of it is pinned"));
  memory->unpin(static_cast<std::byte*>(data) + 4096, 4096);
  memory->free(data, 8192);
}

// Windows that overlap have no common start: the bytes that keep their alignment may be no one's.
TEST_F(PinnedModuleStagerAdoptionTest, OverlappingWindowsAreAdoptedIfTheirLeadIsTheirs) {
  const at::Tensor big = pinned_range(1000);
  float* const data = big.data_ptr<float>();
  const at::Tensor low = at::from_blob(data + 128, {64}, at::kFloat);
  const at::Tensor high = at::from_blob(data + 160, {64}, at::kFloat);
  const auto stager = stage({{"low", low}, {"high", high}}, kAdopting);
  EXPECT_EQ(stager->adopted_bytes(), 96 * 4);
  stager->load();
  EXPECT_TRUE(at::equal(high.cpu(), at::arange(160, 224, at::kFloat)));

  const at::Tensor third = at::from_blob(data + 300, {64}, at::kFloat);
  const at::Tensor fourth = at::from_blob(data + 310, {64}, at::kFloat);
  EXPECT_THAT(refusal({{"third", third}, {"fourth", fourth}}),
              HasSubstr("the 176 bytes in front of it, which keep its alignment, belong to other"));
}

TEST_F(PinnedModuleStagerAdoptionTest, AdoptingContradictsPageableMasters) {
  EXPECT_THROW(
      stage(numbered_tensors(1, 8), {.pin_memory = false, .pinned_sources = PinnedSources::kAdopt}),
      InvalidArgument);
}

TEST_F(PinnedModuleStagerAdoptionTest, AStrictFailureBesideThemLeavesThemWhereTheyAre) {
  context = DeviceContext::create(
      device(), {.host_memory = std::make_shared<RefusingHostMemory>(simulator.host_memory(), 0),
                 .telemetry = telemetry});
  const at::Tensor weight = pinned_range(100);
  const void* const source = weight.data_ptr();
  StagerOptions options = kAdopting;
  options.strict_pinning = true;
  EXPECT_THROW(stage({{"w", weight}, {"x", at::ones({5})}}, options), HostMemoryError);
  EXPECT_EQ(weight.data_ptr(), source);
  EXPECT_TRUE(at::equal(weight, at::arange(100, at::kFloat)));
  EXPECT_NO_THROW(stage({{"w", weight}}, options)) << "it belongs to nobody, and pins nothing";
}

TEST_F(PinnedModuleStagerAdoptionTest, ALoadThatFailsAnywhereLeavesThemWhereTheyAre) {
  const at::Tensor weight = pinned_range(100);
  const at::Tensor other = at::arange(70, at::kFloat);
  const void* const source = weight.data_ptr();
  const auto stager = stage({{"o", other}, {"w", weight}}, kAdopting);
  for (const auto point : {testing::FaultPoint::kAllocate, testing::FaultPoint::kCopy}) {
    for (int n = 1; n <= 2; ++n) {
      simulator.faults().fail(point, testing::FaultWhen::nth(n), testing::Fault::kAccelerator);
      EXPECT_THROW(stager->load(), c10::Error);
      simulator.faults().clear();
      EXPECT_EQ(weight.data_ptr(), source);
      EXPECT_EQ(simulator.memory().allocated, 0);
      stager->load();
      EXPECT_TRUE(at::equal(weight.cpu(), at::arange(100, at::kFloat)));
      EXPECT_TRUE(at::equal(other.cpu(), at::arange(70, at::kFloat)));
      stager->offload();
    }
  }
}

TEST_F(PinnedModuleStagerAdoptionTest, ASourceThatACopyMayStillReadIsKeptForEver) {
  context = DeviceContext::create(
      device(), {.host_memory = simulator.host_memory(), .telemetry = telemetry, .sink = sink});
  at::Tensor weight = pinned_range(128);
  c10::StorageImpl* const kept = weight.storage().unsafeGetStorageImpl();
  const auto source = weak_storage(weight);
  auto stager = stage({{"w", weight}}, kAdopting);
  stager->load();
  stager->offload();
  driver.lost_stream = context->copy_stream();
  stager.reset();
  weight = at::Tensor();
  EXPECT_EQ(context->abandoned_host_bytes(), 512);
  EXPECT_FALSE(source.expired());
  driver.recover();
  simulator.synchronize();
  c10::intrusive_ptr<c10::StorageImpl>::reclaim(kept);
  EXPECT_TRUE(source.expired());
}

TEST_F(PinnedModuleStagerAdoptionTest, BytesThatAnotherComponentHasAdoptedAreRefused) {
  const at::Tensor weight = pinned_range(4096);
  const at::Tensor window =
      at::from_blob(weight.data_ptr<float>() + 1024, {1024}, at::TensorOptions(at::kFloat));
  const at::Tensor apart =
      at::from_blob(weight.data_ptr<float>() + 3072, {1024}, at::TensorOptions(at::kFloat));
  auto first = stage({{"w", weight.narrow(0, 0, 2048)}}, kAdopting);
  EXPECT_THAT(refusal({{"window", window}}),
              HasSubstr("component 'vae' has adopted a part of it already"));
  EXPECT_EQ(refusal({{"apart", apart}}), "staged");
  EXPECT_NO_THROW(stage({{"window", window.clone()}})) << "a copy is no adoption";
  first.reset();
  EXPECT_EQ(refusal({{"window", window}}), "staged");
}

}  // namespace
}  // namespace offstage
