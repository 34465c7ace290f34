// SPDX-License-Identifier: Apache-2.0
// Every dtype of the build, in every layout, made in either mode and moved in either mode, comes
// back byte for byte over 100 cycles.
#include "staging_fixture.hpp"

#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <cstring>
#include <numeric>

namespace offstage {
namespace {

/// Every dtype whose tensors are plain bytes. Quantized ones keep scales elsewhere and are refused.
std::vector<c10::ScalarType> plain_dtypes() {
  std::vector<c10::ScalarType> dtypes;
  for (int i = 0; i < c10::NumScalarTypes; ++i) {
    const auto dtype = static_cast<c10::ScalarType>(i);
    if (dtype == c10::ScalarType::Undefined || c10::isQIntType(dtype)) continue;
    if (std::strcmp(c10::toString(dtype), "UNKNOWN_SCALAR") == 0) continue;
    dtypes.push_back(dtype);
  }
  return dtypes;
}

/// A tensor of 4 x 6 elements of one dtype over bytes that differ.
at::Tensor tensor_of(c10::ScalarType dtype) {
  const at::Tensor tensor = at::empty({4, 6}, at::TensorOptions(c10::kCPU).dtype(dtype));
  auto* const bytes = static_cast<unsigned char*>(tensor.mutable_data_ptr());
  std::iota(bytes, bytes + tensor.nbytes(), static_cast<unsigned char>(1));
  if (dtype == c10::kBool) {
    for (std::size_t i = 0; i < tensor.nbytes(); ++i) bytes[i] %= 2;
  }
  return tensor;
}

std::vector<NamedTensor> layouts_of(c10::ScalarType dtype) {
  const std::string name = c10::toString(dtype);
  const at::Tensor shared = tensor_of(dtype);
  std::vector<NamedTensor> tensors = {
      {name + ".contiguous", tensor_of(dtype)},
      {name + ".transposed", tensor_of(dtype).t()},
      {name + ".expanded", tensor_of(dtype).as_strided({5, 4, 6}, {0, 6, 1})},
      {name + ".overlapping", tensor_of(dtype).as_strided({5, 8}, {3, 1})},
      {name + ".scalar", tensor_of(dtype).as_strided({}, {}, 7)},
      {name + ".empty", tensor_of(dtype).as_strided({0, 6}, {6, 1})},
      {name + ".whole", shared},
      {name + ".column", shared.as_strided({4}, {6}, 2)},
      {name + ".bytes", at::Tensor()},
  };
  tensors.back().tensor =
      at::empty({0}, c10::kByte)
          .set_(shared.storage(), 1, {static_cast<std::int64_t>(shared.nbytes()) - 1}, {1});
  return tensors;
}

/// All bytes of the storage that a tensor lies in, from its own first element on.
std::vector<unsigned char> bytes_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const std::int64_t bytes = (last + 1) * static_cast<std::int64_t>(tensor.itemsize());
  const std::int64_t first = tensor.storage_offset() * static_cast<std::int64_t>(tensor.itemsize());
  const at::Tensor all = at::empty({0}, at::TensorOptions(tensor.device()).dtype(c10::kByte))
                             .set_(tensor.storage(), first, {bytes}, {1})
                             .cpu();
  const auto* data = static_cast<const unsigned char*>(all.const_data_ptr());
  return {data, data + bytes};
}

struct Modes {
  bool made_in_inference;
  bool moved_in_inference;
};

class PinnedModuleStagerEveryTensorTest : public StagingTest,
                                          public ::testing::WithParamInterface<Modes> {};

TEST_P(PinnedModuleStagerEveryTensorTest, ComesBackByteForByteOverAHundredCycles) {
  std::vector<NamedTensor> tensors;
  {
    const c10::InferenceMode mode(GetParam().made_in_inference);
    for (const c10::ScalarType dtype : plain_dtypes()) {
      for (NamedTensor& named : layouts_of(dtype)) tensors.push_back(std::move(named));
    }
  }
  ASSERT_GE(tensors.size(), 9U * 20U) << "FP8, BF16, U16 to U64, complex and all the others";
  const c10::InferenceMode mode(GetParam().moved_in_inference);
  std::vector<std::vector<unsigned char>> before;
  for (const NamedTensor& named : tensors) before.push_back(bytes_of(named.tensor));
  const auto stager = stage(tensors);
  for (int cycle = 0; cycle < 100; ++cycle) {
    stager->load();
    if (cycle % 50 == 0) {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        ASSERT_EQ(tensors[i].tensor.device(), device());
        ASSERT_EQ(bytes_of(tensors[i].tensor), before[i]) << tensors[i].path;
      }
    }
    stager->offload();
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(bytes_of(tensors[i].tensor), before[i]) << tensors[i].path;
    EXPECT_EQ(tensors[i].tensor.is_inference(), GetParam().made_in_inference) << tensors[i].path;
  }
}

INSTANTIATE_TEST_SUITE_P(MadeAndMoved, PinnedModuleStagerEveryTensorTest,
                         ::testing::Values(Modes{false, false}, Modes{false, true},
                                           Modes{true, false}, Modes{true, true}));

}  // namespace
}  // namespace offstage
