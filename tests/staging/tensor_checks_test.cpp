// SPDX-License-Identifier: Apache-2.0
#include "staging/tensor_checks.hpp"

#include <offstage/base/error.hpp>

#include <ATen/ATen.h>

#include <gmock/gmock.h>

namespace offstage::detail {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const at::Tensor& tensor) {
  try {
    check_stageable(tensor, "blocks.1.weight", "transformer");
  } catch (const StagingError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TensorChecksTest, PlainTensorsAreAccepted) {
  EXPECT_EQ(refusal(at::rand({2, 3})), "accepted");
  EXPECT_EQ(refusal(at::rand({2, 3}).t()), "accepted");
  EXPECT_EQ(refusal(at::rand({2, 3}).requires_grad_()), "accepted");
  EXPECT_EQ(refusal(at::empty({0, 7})), "accepted");
  EXPECT_EQ(refusal(at::zeros({}, at::kBool)), "accepted");
  EXPECT_EQ(refusal(at::conj(at::zeros({2}, at::kComplexFloat))), "accepted");
}

TEST(TensorChecksTest, RefusalsNameComponentTensorAndReason) {
  EXPECT_THAT(refusal(at::Tensor()), AllOf(HasSubstr("'transformer'"),
                                           HasSubstr("'blocks.1.weight'"), HasSubstr("undefined")));
}

// case C08
TEST(TensorChecksTest, MetaTensorsAreRefused) {
  EXPECT_THAT(refusal(at::empty({4}, at::TensorOptions().device(at::kMeta))),
              HasSubstr("meta tensor"));
}

TEST(TensorChecksTest, SparseTensorsAreRefused) {
  EXPECT_THAT(refusal(at::eye(3).to_sparse()), HasSubstr("not strided"));
}

TEST(TensorChecksTest, QuantizedTensorsAreRefused) {
  EXPECT_THAT(refusal(at::quantize_per_tensor(at::rand({4}), 0.1, 0, at::kQInt8)),
              HasSubstr("quantized"));
}

TEST(TensorChecksTest, ZeroTensorsAreRefused) {
  EXPECT_THAT(refusal(at::_efficientzerotensor({3}, at::kFloat)), HasSubstr("subclass"));
}

TEST(TensorChecksTest, SubclassesAreRefused) {
  struct Subclass final : c10::TensorImpl {
    using TensorImpl::TensorImpl;
  };
  const at::Tensor weight = at::rand({3});
  const c10::TensorImpl& plain = *weight.unsafeGetTensorImpl();
  const auto subclass = at::detail::make_tensor<Subclass>(c10::Storage(weight.storage()),
                                                          plain.key_set(), plain.dtype());
  EXPECT_THAT(refusal(subclass), HasSubstr("subclass"));
  const auto python = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(weight.storage()),
                                                               plain.key_set(), plain.dtype());
  python.unsafeGetTensorImpl()->set_python_dispatch(true);
  EXPECT_THAT(refusal(python), HasSubstr("subclass"));
}

TEST(TensorChecksTest, ResultsOfAutogradAreRefused) {
  EXPECT_THAT(refusal(at::rand({2}).requires_grad_() * 2), HasSubstr("grad_fn"));
}

TEST(TensorChecksTest, TensorsWithAGradientAreRefused) {
  at::Tensor weight = at::rand({2}).requires_grad_();
  weight.mutable_grad() = at::ones({2});
  EXPECT_THAT(refusal(weight), HasSubstr("gradient"));
}

// Observation O11
TEST(TensorChecksTest, TensorsThatReachBeyondTheirStorageAreRefused) {
  const at::Tensor weight = at::rand({8});
  weight.storage().unsafeGetStorageImpl()->set_nbytes(16);
  EXPECT_THAT(refusal(weight), HasSubstr("reaches to byte 32 of a storage of 16 bytes"));
}

TEST(TensorChecksTest, AViewThatReachesBeyondItsStorageIsRefused) {
  const at::Tensor weight = at::rand({8});
  const at::Tensor view = weight.narrow(0, 4, 4);
  weight.storage().unsafeGetStorageImpl()->set_nbytes(16);
  EXPECT_THAT(refusal(view), HasSubstr("reaches to byte 32 of a storage of 16 bytes"));
}

TEST(TensorChecksTest, TensorsWithoutMemoryAreRefused) {
  const at::Tensor weight = at::rand({8});
  weight.storage().unsafeGetStorageImpl()->set_data_ptr_noswap({nullptr, c10::Device(c10::kCPU)});
  EXPECT_THAT(refusal(weight), HasSubstr("has elements but no memory"));
}

TEST(TensorChecksTest, SpannedBytesFollowTheStrides) {
  EXPECT_EQ(spanned_bytes(at::rand({4, 8})), 128);
  EXPECT_EQ(spanned_bytes(at::rand({4, 8}).t()), 128);
  EXPECT_EQ(spanned_bytes(at::rand({4, 8}).narrow(1, 0, 1)), (3 * 8 + 1) * 4);
  EXPECT_EQ(spanned_bytes(at::rand({2, 1}).expand({2, 1000})), 8);
  EXPECT_EQ(spanned_bytes(at::rand({0, 7})), 0);
  EXPECT_EQ(spanned_bytes(at::zeros({}, at::kDouble)), 8);
}

TEST(TensorChecksTest, ElementsShareMemoryWhereAStrideIsTooShort) {
  const auto overlaps = [](const at::Tensor& tensor) {
    return may_overlap_itself(tensor.sizes(), tensor.strides());
  };
  EXPECT_FALSE(overlaps(at::zeros({3, 4})));
  EXPECT_FALSE(overlaps(at::zeros({3, 4}).t()));
  EXPECT_FALSE(overlaps(at::zeros({6, 4}).slice(0, 0, 6, 2).select(1, 1)));
  EXPECT_FALSE(overlaps(at::zeros({})));
  EXPECT_FALSE(overlaps(at::zeros({0, 4}).expand({5, 0, 4})));
  EXPECT_FALSE(overlaps(at::zeros({3}).unsqueeze(0).as_strided({1, 3}, {0, 1}))) << "size 1";
  EXPECT_TRUE(overlaps(at::zeros({3, 1}).expand({3, 2})));
  EXPECT_TRUE(overlaps(at::zeros({6}).as_strided({4, 3}, {1, 1})));
  EXPECT_FALSE(overlaps(at::zeros({12}).as_strided({3, 4}, {4, 1})));
  EXPECT_TRUE(overlaps(at::zeros({12}).as_strided({3, 4}, {3, 1})));
}

}  // namespace
}  // namespace offstage::detail
