// SPDX-License-Identifier: Apache-2.0
// Proof that a stager makes every wait that it needs: each is left out once, and the simulator's
// race checker sees what is missing.
#include "staging_fixture.hpp"

#include <c10/core/StreamGuard.h>

namespace offstage {
namespace {

using testing::Fault;
using testing::FaultPoint;
using testing::FaultWhen;

/// Two components take turns in the same device memory; the first is used on two streams.
class PinnedModuleStagerRacesTest : public StagingTest {
 protected:
  struct Turns {
    torch::nn::Linear first{64, 64};
    torch::nn::Linear second{64, 64};
  };

  /// Three rounds. Returns the outputs, on the host.
  std::vector<at::Tensor> run(Turns& turns) {
    const c10::InferenceMode inference;
    const auto first = stage(named_tensors(turns.first), {.chunk_bytes_max = 16 * kKiB});
    const auto second = stage(named_tensors(turns.second));
    const auto cache = retaining_cache();
    first->set_cache(cache);
    second->set_cache(cache);
    const at::Tensor input = at::full({4, 64}, 0.5F, at::TensorOptions().device(device()));
    const at::Tensor side_input = input.clone();
    context->current_stream().synchronize();
    std::vector<at::Tensor> outputs;
    for (int round = 0; round < 3; ++round) {
      first->load();
      first->use_on(side);
      outputs.push_back(turns.first->forward(input));
      {
        const c10::StreamGuard guard(side);
        outputs.push_back(turns.first->forward(side_input));
      }
      first->offload();
      second->load();
      outputs.push_back(turns.second->forward(input));
      second->offload();
    }
    context->current_stream().synchronize();
    side.synchronize();
    for (at::Tensor& output : outputs) output = output.cpu();
    return outputs;
  }

  /// Leaves out the n-th call of a kind, and says how many races that makes.
  std::size_t races_without(FaultPoint point, std::int64_t n, Turns& turns) {
    simulator.reset();
    simulator.faults().fail(point, FaultWhen::nth(n), Fault::kIgnored);
    const auto hits = simulator.faults().hits();
    try {
      run(turns);
      simulator.synchronize();  // Throws what a free has found.
    } catch (const testing::RaceError&) {
      try {
        simulator.synchronize();
      } catch (const testing::RaceError&) {
        // What the unwinding has found.
      }
    }
    EXPECT_EQ(simulator.faults().hits(), hits + 1);
    return simulator.races().size();
  }

  const c10::Stream side = new_stream();
};

TEST_F(PinnedModuleStagerRacesTest, NothingIsMissing) {
  Turns turns;
  const at::Tensor input = at::full({4, 64}, 0.5F);
  const at::Tensor first = turns.first->forward(input);
  const at::Tensor second = turns.second->forward(input);
  const auto outputs = run(turns);
  EXPECT_TRUE(simulator.races().empty());
  ASSERT_EQ(outputs.size(), 9U);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_TRUE(at::equal(outputs[i], i % 3 == 2 ? second : first)) << i;
  }
}

struct Edges {
  FaultPoint point;
  std::int64_t count;
};

class PinnedModuleStagerEdgesTest : public PinnedModuleStagerRacesTest,
                                    public ::testing::WithParamInterface<Edges> {};

// cases C23 and C27: the memory goes back behind its users, and no edge is redundant.
TEST_P(PinnedModuleStagerEdgesTest, EveryOneThatIsLeftOutIsARace) {
  const auto [point, count] = GetParam();
  Turns turns;
  const auto before = simulator.faults().calls(point);
  run(turns);
  ASSERT_EQ(simulator.faults().calls(point) - before, count);
  for (std::int64_t n = 1; n <= count; ++n) {
    EXPECT_GT(races_without(point, n, turns), 0U) << to_string(point) << " " << n;
  }
}

// Three rounds; the first component has two users, the second one.
INSTANTIATE_TEST_SUITE_P(OfThreeRounds, PinnedModuleStagerEdgesTest,
                         ::testing::Values(Edges{FaultPoint::kWait, 3 * (2 + 2 + 1 + 1)},
                                           Edges{FaultPoint::kRecord, 3 * (1 + 2 + 1 + 1)}),
                         [](const auto& instance) {
                           return std::string(testing::to_string(instance.param.point));
                         });

TEST_F(PinnedModuleStagerRacesTest, AComponentIsUsedWithoutAWaitOnlyAfterAReport) {
  Turns turns;
  const auto stager = stage(named_tensors(turns.first));
  const at::Tensor input = at::full({4, 64}, 0.5F, at::TensorOptions().device(device()));
  context->current_stream().synchronize();
  stager->load();
  {
    const c10::StreamGuard guard(side);  // Not declared with use_on().
    EXPECT_THROW((void)turns.first->forward(input), testing::RaceError);
  }
  EXPECT_NO_THROW((void)turns.first->forward(input));
  stager->offload();
}

}  // namespace
}  // namespace offstage
