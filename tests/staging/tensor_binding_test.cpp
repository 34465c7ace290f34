// SPDX-License-Identifier: Apache-2.0
#include "staging/tensor_binding.hpp"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <gmock/gmock.h>

namespace offstage::detail {
namespace {

/// Copies a list of tensors into fresh CPU storages, as a load would.
struct Copies {
  explicit Copies(std::vector<NamedTensor> tensors)
      : layout(make_staging_layout(std::move(tensors), "c", 512, 1 << 30)) {
    for (const StorageGroup& group : layout.groups) {
      at::Tensor bytes = at::zeros({group.bytes}, at::kByte);
      for (const SourceRange& source : group.sources) {
        std::memcpy(bytes.mutable_data_ptr<std::uint8_t>() + source.group_offset,
                    static_cast<const char*>(source.storage.data()) + source.begin,
                    static_cast<std::size_t>(source.bytes));
      }
      storages.push_back(bytes.storage());
    }
  }
  void bind_all() const {
    for (const TensorRecord& record : layout.tensors) bind(record, storages[record.group]);
  }
  StagingLayout layout;
  std::vector<c10::Storage> storages;
};

TEST(TensorBindingTest, ABoundTensorKeepsIdentityValuesAndMetadata) {
  const at::Tensor weight = at::rand({4, 8}).t();  // case C11: strides 1, 8
  const at::Tensor before = weight.clone();
  const void* old_memory = weight.data_ptr();
  const c10::TensorImpl* impl = weight.unsafeGetTensorImpl();
  const Copies copies({{"w", weight}});
  copies.bind_all();
  EXPECT_EQ(weight.unsafeGetTensorImpl(), impl);
  EXPECT_NE(weight.data_ptr(), old_memory);
  EXPECT_EQ(weight.strides(), at::IntArrayRef({1, 8}));
  EXPECT_TRUE(at::equal(weight, before));
}

// Observation O06: every handle follows.
TEST(TensorBindingTest, EveryHandleFollowsAndAViewMadeBeforeDoesNot) {
  const at::Tensor weight = at::rand({4});
  const at::Tensor handle = weight;  // NOLINT(performance-unnecessary-copy-initialization)
  const at::Tensor view = weight.view({2, 2});
  Copies({{"w", weight}}).bind_all();
  EXPECT_EQ(handle.data_ptr(), weight.data_ptr());
  EXPECT_NE(view.data_ptr(), weight.data_ptr());
}

TEST(TensorBindingTest, RequiresGradLeafAndVersionStay) {
  at::Tensor weight = at::rand({4});
  weight.add_(1);
  weight.requires_grad_();
  const auto version = weight._version();
  Copies({{"w", weight}}).bind_all();
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_TRUE(weight.is_leaf());
  EXPECT_EQ(weight._version(), version);
  (weight * 2).sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::full({4}, 2.0F)));
}

// case C14: the conjugate and negative bits are kept.
TEST(TensorBindingTest, ConjugateAndNegativeViewsKeepTheirBit) {
  const at::Tensor base = at::complex(at::zeros({3}), at::ones({3}));  // 0+1i
  const at::Tensor conjugate = base.conj();
  const at::Tensor negative = at::imag(conjugate);
  ASSERT_TRUE(conjugate.is_conj());
  ASSERT_TRUE(negative.is_neg());
  Copies({{"c", conjugate}, {"n", negative}}).bind_all();
  EXPECT_TRUE(conjugate.is_conj());
  EXPECT_TRUE(negative.is_neg());
  EXPECT_EQ(conjugate[0].item<c10::complex<float>>(), (c10::complex<float>(0, -1)));
  EXPECT_EQ(negative[0].item<float>(), -1.0F);
  EXPECT_TRUE(conjugate.is_alias_of(negative));
}

// Observation O04: being an inference tensor must not follow from where a tensor is bound.
TEST(TensorBindingTest, NormalAndInferenceTensorsStayWhatTheyAreInEitherMode) {
  at::Tensor inference;
  {
    const c10::InferenceMode mode;
    inference = at::rand({2});
  }
  const at::Tensor normal = at::rand({2});
  for (const bool inside : {false, true}) {
    const c10::InferenceMode mode(inside);
    Copies({{"i", inference}, {"n", normal}, {"j", inference.view({2, 1})}}).bind_all();
    EXPECT_TRUE(inference.is_inference()) << inside;
    EXPECT_FALSE(normal.is_inference()) << inside;
  }
}

TEST(TensorBindingTest, IsBoundToNoticesEveryChange) {
  const at::Tensor weight = at::rand({4, 2});
  const Copies copies({{"w", weight}});
  const TensorRecord& record = copies.layout.tensors[0];
  EXPECT_FALSE(is_bound_to(record, copies.storages[0]));
  copies.bind_all();
  EXPECT_TRUE(is_bound_to(record, copies.storages[0]));
  weight.t_();
  EXPECT_FALSE(is_bound_to(record, copies.storages[0]));
  weight.t_();
  EXPECT_TRUE(is_bound_to(record, copies.storages[0]));
  weight.set_data(at::rand({4, 2}));
  EXPECT_FALSE(is_bound_to(record, copies.storages[0]));
}

/// Each of these differs from the bound tensor in one thing only.
TEST(TensorBindingTest, IsBoundToNoticesAChangeOfAnyOneThing) {
  const at::Tensor weight = at::zeros({5}, at::kComplexFloat).narrow(0, 0, 3);
  const Copies copies({{"w", weight}, {"spare", weight.as_strided({5}, {1}, 0)}});
  const TensorRecord& record = copies.layout.tensors[0];
  const auto is_bound_as = [&](const at::Tensor& view) {
    weight.unsafeGetTensorImpl()->shallow_copy_from(view.getIntrusivePtr());
    return is_bound_to(record, copies.storages[0]);
  };
  const at::Tensor view = make_view(record, copies.storages[0]);
  EXPECT_TRUE(is_bound_as(view));
  EXPECT_FALSE(is_bound_as(view.clone())) << "storage";
  EXPECT_FALSE(is_bound_as(view.view(at::kDouble))) << "dtype";
  EXPECT_FALSE(is_bound_as(view.as_strided({3}, {1}, 1))) << "offset";
  EXPECT_FALSE(is_bound_as(view.as_strided({2}, {1}, 0))) << "sizes";
  EXPECT_FALSE(is_bound_as(view.as_strided({3}, {2}, 0))) << "strides";
  EXPECT_FALSE(is_bound_as(view.conj())) << "conjugate bit";
  EXPECT_FALSE(is_bound_as(view._neg_view())) << "negative bit";
  EXPECT_TRUE(is_bound_as(view));
}

/// case C13: every dtype goes through as bytes.
class DtypeBindingTest : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(DtypeBindingTest, BytesAreTheSame) {
  const at::Tensor raw = at::randint(0, 256, {32}, at::kByte);
  const at::Tensor typed = raw.clone().view(GetParam());
  Copies({{"t", typed}}).bind_all();
  EXPECT_EQ(typed.scalar_type(), GetParam());
  EXPECT_TRUE(at::equal(typed.view(at::kByte), raw));
}

INSTANTIATE_TEST_SUITE_P(
    All, DtypeBindingTest,
    ::testing::Values(at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
                      at::kBFloat16, at::kFloat, at::kDouble, at::kComplexHalf, at::kComplexFloat,
                      at::kComplexDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2,
                      at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu, at::kUInt16,
                      at::kUInt32, at::kUInt64),
    [](const auto& tested) { return std::string(at::toString(tested.param)); });

}  // namespace
}  // namespace offstage::detail
