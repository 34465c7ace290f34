// SPDX-License-Identifier: Apache-2.0
// What stays as it is over loads and offloads: shared memory, strides, offsets, bits, dtypes.
#include "staging_fixture.hpp"

#include <offstage/base/error.hpp>

namespace offstage {
namespace {

class PinnedModuleStagerLayoutTest : public StagingTest {};

struct Head : torch::nn::Module {
  explicit Head(at::Tensor shared_weight, at::Tensor shared_buffer) {
    weight = register_parameter("weight", std::move(shared_weight), /*requires_grad=*/false);
    steps = register_buffer("steps", std::move(shared_buffer));
  }
  at::Tensor weight;
  at::Tensor steps;
};

// Two modules over one 64-byte parameter and one 48-byte buffer, both shared.
TEST_F(PinnedModuleStagerLayoutTest, ModulesThatShareStorageStillShareItOnBothSides) {
  const at::Tensor weight = at::arange(16, at::kFloat);
  const at::Tensor buffer = at::arange(6, at::kLong);
  const auto first = std::make_shared<Head>(weight, buffer);
  const auto second = std::make_shared<Head>(weight.view({4, 4}), buffer.narrow(0, 2, 4));
  const auto stager = stage(named_tensors(first, second));
  EXPECT_EQ(stager->storage_count(), 2U);
  EXPECT_EQ(stager->tensor_count(), 4U);
  const void* master = first->weight.data_ptr();
  stager->set_cache(std::make_shared<BoundedAllocatorCache>(
      device(), telemetry, std::make_shared<FixedRetention>(), sink));

  stager->load();
  EXPECT_EQ(second->weight.data_ptr(), first->weight.data_ptr());
  EXPECT_EQ(static_cast<char*>(second->steps.data_ptr()),
            static_cast<char*>(first->steps.data_ptr()) + 16);
  first->weight[3] = 7;
  EXPECT_EQ(second->weight.cpu()[0][3].item<float>(), 7.0F) << "a write is seen by both";

  stager->offload();
  EXPECT_EQ(first->weight.data_ptr(), master);
  EXPECT_EQ(second->weight.data_ptr(), master);
  EXPECT_EQ(second->weight[0][3].item<float>(), 3.0F) << "device edits are lost by design";
  EXPECT_EQ(count_events(EventKind::kRetentionDecided), 1U) << "one cache decision";
}

// case C01
TEST_F(PinnedModuleStagerLayoutTest, TiedWeightsStayTiedOverTwoRounds) {
  const at::Tensor weight = at::rand({64, 8});
  const std::vector<NamedTensor> tensors = {{"in", weight}, {"out", weight.view({64, 8})}};
  const auto stager = stage(tensors);
  EXPECT_EQ(stager->bytes(), 2048);
  stager->load();
  stager->offload();
  stager->load();
  EXPECT_TRUE(tensors[0].tensor.is_alias_of(tensors[1].tensor));
  tensors[0].tensor.fill_(7);
  EXPECT_EQ(tensors[1].tensor.cpu()[63][7].item<float>(), 7.0F);
}

// case C02: a device with room for the unique bytes only.
TEST_F(PinnedModuleStagerLayoutTest, TiedWeightsNeedTheirBytesOnce) {
  simulator.set_capacity(0, 12 * kMiB);
  const at::Tensor weight = at::rand({3072, 1024});
  const auto stager = stage({{"in", weight}, {"out", weight.view({1024, 3072})}});
  stager->load();
  EXPECT_EQ(simulator.memory().peak_allocated, 12 * kMiB);
}

// case C03: a plain member that was declared follows its weight.
TEST_F(PinnedModuleStagerLayoutTest, ADeclaredViewFollowsItsWeight) {
  const at::Tensor weight = at::rand({8, 4});
  const at::Tensor view = weight.view(32);
  const auto stager = stage({{"W", weight}, {"V", view}});
  stager->load();
  EXPECT_EQ(view.device(), device());
  EXPECT_EQ(view.cpu()[5].item<float>(), weight.cpu()[1][1].item<float>());
}

// case C05, with the control that Module::to loses what we keep.
TEST_F(PinnedModuleStagerLayoutTest, AViewOfAParameterStaysItsAliasWhereModuleToLosesIt) {
  const auto aliases = [](const Head& head) { return head.weight.is_alias_of(head.steps); };
  const at::Tensor weight = at::rand({4, 4});
  const auto staged = std::make_shared<Head>(weight, weight.view(16));
  const auto stager = stage(named_tensors(staged));
  stager->load();
  EXPECT_TRUE(aliases(*staged));
  EXPECT_EQ(staged->steps.storage_offset(), 0);
  stager->offload();
  EXPECT_TRUE(aliases(*staged));

  const at::Tensor other = at::rand({4, 4});
  Head moved(other, other.view(16));
  moved.to(at::kDouble);
  EXPECT_FALSE(aliases(moved));
}

// case C07: nothing depends on a state dict.
TEST_F(PinnedModuleStagerLayoutTest, ABufferThreeLevelsDeepSurvivesTwoRounds) {
  struct Leaf : torch::nn::Module {
    Leaf() { buffer = register_buffer("positions", at::arange(10)); }
    at::Tensor buffer;
  };
  struct Middle : torch::nn::Module {
    Middle() { leaf = register_module("leaf", std::make_shared<Leaf>()); }
    std::shared_ptr<Leaf> leaf;
  };
  struct Top : torch::nn::Module {
    Top() { middle = register_module("middle", std::make_shared<Middle>()); }
    std::shared_ptr<Middle> middle;
  };
  const Top top;
  const auto stager = stage(named_tensors(top));
  for (int round = 0; round < 2; ++round) {
    stager->load();
    EXPECT_TRUE(at::equal(top.middle->leaf->buffer.cpu(), at::arange(10)));
    stager->offload();
  }
  EXPECT_TRUE(top.middle->leaf->buffer.device().is_cpu());
  EXPECT_TRUE(at::equal(top.middle->leaf->buffer, at::arange(10)));
}

// case C09
TEST_F(PinnedModuleStagerLayoutTest, EmptyTensorsMoveWithoutACopy) {
  const std::vector<NamedTensor> tensors = {{"empty", at::rand({0, 7})}};
  const auto pinned = simulator.pinned_bytes();
  const auto stager = stage(tensors);
  const auto before = counters();
  stager->load();
  EXPECT_EQ((counters() - before).copies_h2d, 0);
  EXPECT_EQ(tensors[0].tensor.device(), device());
  EXPECT_EQ(tensors[0].tensor.sizes(), at::IntArrayRef({0, 7}));
  stager->offload();
  EXPECT_EQ(simulator.pinned_bytes(), pinned);
}

// cases C11, C12, C14, observations O13, O17
TEST_F(PinnedModuleStagerLayoutTest, EveryLayoutKeepsItsStridesAndItsValues) {
  const at::Tensor big = at::rand({1024, 256});
  const at::Tensor complex = at::complex(at::zeros({3}), at::ones({3}));
  const std::vector<NamedTensor> tensors = {
      {"transposed", at::rand({8, 4}).t()},
      {"channels_last", at::rand({2, 3, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast)},
      {"expanded", at::rand({2, 1}).expand({2, 1000})},
      {"scalar", at::full({}, 42, at::kLong)},
      {"row", big[3]},
      {"column", big.select(1, 7)},
      {"overlapping", at::rand({10}).as_strided({4, 4}, {2, 1})},
      {"conjugate", complex.conj()},
      {"negative", at::imag(complex.conj())},
      {"bool", at::rand({9}).gt(0.5)},
      {"half", at::rand({5}).to(at::kHalf)},
      {"fp8", at::rand({5}).to(at::kFloat8_e4m3fn)},
      {"bits", big.view(at::kInt)[9]},
  };
  struct Before {
    at::Tensor value;
    std::vector<std::int64_t> strides;
  };
  const auto on_host = [](const at::Tensor& tensor) {
    const at::Tensor host = tensor.cpu();
    return host.scalar_type() == at::kFloat8_e4m3fn ? host.view(at::kByte) : host.resolve_neg();
  };
  std::vector<Before> before;
  for (const auto& named : tensors) {
    before.push_back({on_host(named.tensor).clone(), named.tensor.strides().vec()});
  }
  const auto stager = stage(tensors);
  const auto check = [&](c10::DeviceType type) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& tensor = tensors[i].tensor;
      EXPECT_EQ(tensor.device().type(), type) << tensors[i].path;
      EXPECT_EQ(tensor.strides().vec(), before[i].strides) << tensors[i].path;
      EXPECT_TRUE(at::equal(on_host(tensor), before[i].value)) << tensors[i].path;
    }
  };
  check(c10::kCPU);
  for (int round = 0; round < 2; ++round) {
    stager->load();
    check(device().type());
    stager->offload();
    check(c10::kCPU);
  }
  EXPECT_TRUE(tensors[7].tensor.is_conj());
  EXPECT_TRUE(tensors[8].tensor.is_neg());
}

TEST_F(PinnedModuleStagerLayoutTest, NamesOfDimensionsStay) {
  const at::Tensor image = at::rand({2, 3});
  const at::Dimname height = at::Dimname::fromSymbol(at::Symbol::dimname("H"));
  const at::Dimname width = at::Dimname::fromSymbol(at::Symbol::dimname("W"));
  at::internal_set_names_inplace(image, {{height, width}});
  const auto stager = stage({{"image", image}});
  const auto named = [&] { return image.has_names() && image.names()[1] == width; };
  EXPECT_TRUE(named());
  stager->load();
  EXPECT_TRUE(named());
  stager->offload();
  EXPECT_TRUE(named());
}

TEST_F(PinnedModuleStagerLayoutTest, AViewPinsTheBytesItCoversAndNotItsStorage) {
  const at::Tensor big = at::rand({1024, 1024});
  EXPECT_EQ(stage({{"row", big[3]}})->pinned_bytes(), 4096);
}

TEST_F(PinnedModuleStagerLayoutTest, EachStorageHasItsOwnBytesAndIsNotResizable) {
  const auto tensors = numbered_tensors(3, 100);
  const auto stager = stage(tensors);
  for (int side = 0; side < 2; ++side) {
    if (side == 1) stager->load();
    EXPECT_EQ(tensors[1].tensor.storage().nbytes(), 400U);
    EXPECT_FALSE(tensors[1].tensor.storage().resizable());
    EXPECT_FALSE(tensors[0].tensor.is_alias_of(tensors[1].tensor));
    EXPECT_EQ(tensors[1].tensor.storage_offset(), 0);
  }
}

TEST_F(PinnedModuleStagerLayoutTest, DeviceAddressesAreMultiplesOfTheAlignment) {
  const auto tensors = numbered_tensors(9, 33);
  const auto stager = stage(tensors, {.alignment = 256});
  stager->load();
  for (const auto& named : tensors) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(named.tensor.data_ptr()) % 256, 0U);
  }
}

// Equal addresses on different devices are different memory; windows on one device may overlap.
TEST_F(PinnedModuleStagerLayoutTest, OnlyWindowsOfOneDeviceShareMemory) {
  simulator.set_race_action(testing::RaceAction::kIgnore);  // These are no blocks of the devices.
  std::vector<float> mapping(64);
  for (std::size_t i = 0; i < mapping.size(); ++i) mapping[i] = static_cast<float>(i);
  const auto window = [&](c10::Device on, int begin) {
    return at::for_blob(mapping.data() + begin, {32})
        .options(at::TensorOptions().device(on))
        .target_device(on)
        .make_tensor();
  };
  const std::vector<NamedTensor> tensors = {{"host", window(c10::kCPU, 0)},
                                            {"first", window(device(), 4)},
                                            {"second", window(simulator.device(1), 8)},
                                            {"more of host", window(c10::kCPU, 12)},
                                            {"more of first", window(device(), 16)}};
  const auto stager = stage(tensors);
  EXPECT_EQ(stager->storage_count(), 3U);
  EXPECT_TRUE(tensors[0].tensor.is_alias_of(tensors[3].tensor));
  EXPECT_TRUE(tensors[1].tensor.is_alias_of(tensors[4].tensor));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto begin = static_cast<int>(4 * i);
    EXPECT_TRUE(at::equal(tensors[i].tensor, at::arange(begin, begin + 32, at::kFloat)));
  }
}

// The sources are let go one by one: what user code does not hold is freed.
TEST_F(PinnedModuleStagerLayoutTest, SourcesAreFreed) {
  at::Tensor weight = at::rand({1000});
  const c10::weak_intrusive_ptr<c10::StorageImpl> source(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(weight.storage().unsafeGetStorageImpl()));
  const auto stager = stage({{"w", weight}});
  EXPECT_TRUE(source.expired());
}

}  // namespace
}  // namespace offstage
