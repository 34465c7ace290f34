// SPDX-License-Identifier: Apache-2.0
// Errors of calls that cannot throw, and of queued work: somebody gets to see them.
#include "simulator_fixture.hpp"

#include <offstage/base/exception_text.hpp>
#include <offstage/staging/pinned_module_stager.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <memory>
#include <vector>

namespace offstage::testing {
namespace {

class SimulatorPendingErrorsTest : public SimulatorTest {
 protected:
  at::TensorOptions on_device() const { return at::TensorOptions().device(simulator_.device()); }

  /// A race that only the next synchronisation can throw.
  void free_under_a_reader() {
    at::Tensor x = at::ones({4}, on_device());
    simulator_.synchronize();
    const c10::StreamGuard guard(other_);
    sum_ = x.add(1);
    x.reset();
  }

  const c10::Stream other_ = new_stream();
  at::Tensor sum_;
};

TEST_F(SimulatorPendingErrorsTest, AWaitOfCleanUpLeavesARaceToTheNextSynchronisation) {
  free_under_a_reader();
  {
    const CancellationDeferral clean_up;
    EXPECT_NO_THROW(default_stream().synchronize());
    EXPECT_NO_THROW(simulator_.synchronize());
  }
  EXPECT_THROW(default_stream().synchronize(), RaceError);
  EXPECT_NO_THROW(default_stream().synchronize());
  sum_.reset();
}

TEST_F(SimulatorPendingErrorsTest, AWaitOfCleanUpLeavesAnErrorOfAKernelToTheNextSynchronisation) {
  const at::Tensor rows = at::ones({2, 2}, on_device());
  const at::Tensor index = at::full({1}, 7, on_device().dtype(at::kLong));
  (void)at::embedding(rows, index);
  {
    const CancellationDeferral clean_up;
    EXPECT_NO_THROW(default_stream().synchronize());
  }
  EXPECT_THROW(default_stream().synchronize(), c10::Error);
}

TEST_F(SimulatorPendingErrorsTest, AStagerThatIsDestroyedDoesNotSwallowTheRacesOfItsOffload) {
  at::Tensor weight = at::ones({4});
  {
    PinnedModuleStager stager(std::vector<NamedTensor>{{"weight", weight}},
                              DeviceContext::create(simulator_.device()));
    stager.load();
    const at::Tensor input = at::ones({4}, on_device());
    simulator_.synchronize();
    {
      const c10::StreamGuard undeclared(other_);
      sum_ = input.add(weight);
    }
    input.record_stream(other_);
    stager.offload();
  }
  EXPECT_FALSE(simulator_.races().empty());
  sum_.reset();
  EXPECT_THROW(simulator_.synchronize(), RaceError);
}

TEST_F(SimulatorPendingErrorsTest, AResetThrowsARaceThatNoSynchronisationHasThrown) {
  free_under_a_reader();
  sum_.reset();
  EXPECT_THROW(simulator_.reset(), RaceError);
  EXPECT_NO_THROW(simulator_.reset());
}

}  // namespace
}  // namespace offstage::testing
