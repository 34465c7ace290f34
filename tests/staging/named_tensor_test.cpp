// SPDX-License-Identifier: Apache-2.0
#include <offstage/staging/named_tensor.hpp>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>

#include <memory>

namespace offstage {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> paths(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& named : tensors) names.push_back(named.path);
  return names;
}

struct NormLike : torch::nn::Module {
  NormLike() {
    register_buffer("steps", at::zeros({}, at::kLong));
    weight = register_parameter("weight", at::ones({4}));
  }
  at::Tensor weight;
};

struct Tower : torch::nn::Module {
  Tower() {
    inner = register_module("inner", std::make_shared<NormLike>());
    linear =
        register_module("linear", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)));
  }
  std::shared_ptr<NormLike> inner;
  torch::nn::Linear linear = nullptr;
};

TEST(NamedTensorTest, ListsParametersThenBuffersWithTheirPaths) {
  const Tower tower;
  EXPECT_THAT(paths(named_tensors(tower)),
              ElementsAre("inner.weight", "linear.weight", "inner.steps"));
}

// case C10: the bias of a Linear without bias is registered, but undefined.
TEST(NamedTensorTest, LeavesOutUndefinedTensors) {
  const torch::nn::Linear linear(torch::nn::LinearOptions(4, 4).bias(false));
  EXPECT_THAT(paths(named_tensors(linear)), ElementsAre("weight"));
}

TEST(NamedTensorTest, TakesModulesHoldersAndPointers) {
  const auto pointer = std::make_shared<NormLike>();
  const torch::nn::Linear holder(2, 2);
  EXPECT_THAT(paths(named_tensors(*pointer)), ElementsAre("weight", "steps"));
  EXPECT_THAT(paths(named_tensors(pointer)), ElementsAre("weight", "steps"));
  EXPECT_THAT(paths(named_tensors(holder)), ElementsAre("weight", "bias"));
}

TEST(NamedTensorTest, NumbersSeveralModules) {
  const NormLike first;
  const torch::nn::Linear second(2, 2);
  EXPECT_THAT(paths(named_tensors(first, second)),
              ElementsAre("0.weight", "0.steps", "1.weight", "1.bias"));
}

TEST(NamedTensorTest, SharesTheTensorsWithTheModule) {
  const NormLike module;
  EXPECT_TRUE(named_tensors(module)[0].tensor.is_same(module.weight));
}

}  // namespace
}  // namespace offstage
