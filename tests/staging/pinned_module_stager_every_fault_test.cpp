// SPDX-License-Identifier: Apache-2.0
// Every call that a stager makes into the device fails once, and from there on for ever, with every
// type of exception: nothing is lost, nothing is half moved, and the next load works.
#include "staging_fixture.hpp"

#include <offstage/base/error.hpp>

#include <optional>

namespace offstage {
namespace {

using testing::Fault;
using testing::FaultPoint;
using testing::FaultWhen;

struct Case {
  FaultPoint point;
  Fault fault;
};

class PinnedModuleStagerEveryFaultTest : public StagingTest,
                                         public ::testing::WithParamInterface<Case> {
 protected:
  std::vector<NamedTensor> tensors = numbered_tensors(6, 3 * kKiB);

  /// Three chunks, and no cache: every offload releases.
  std::shared_ptr<PinnedModuleStager> make() {
    return stage(tensors, {.chunk_bytes_max = 24 * kKiB});
  }

  /// Loads and offloads twice, whatever happens; lets nothing out.
  void use(PinnedModuleStager& stager) {
    const auto attempt = [&](auto&& call) {
      try {
        call();
      } catch (...) {
        // All or nothing, whichever it was.
        EXPECT_FALSE(stager.is_loaded());
        for (const auto& named : tensors) {
          EXPECT_TRUE(named.tensor.device().is_cpu()) << named.path;
        }
      }
    };
    for (int round = 0; round < 2; ++round) {
      attempt([&] { stager.load(); });
      attempt([&] { stager.offload(); });
      attempt([&] { stager.wait_copies(); });
    }
  }
};

TEST_P(PinnedModuleStagerEveryFaultTest, LeavesTheComponentWhole) {
  const auto [point, fault] = GetParam();
  testing::FaultScript& faults = simulator.faults();
  const auto pinned = simulator.pinned_bytes();
  const auto calls = [&] {
    const auto before = faults.calls(point);
    use(*make());
    return faults.calls(point) - before;
  }();
  ASSERT_GT(calls, 0) << "the stager makes no such call";
  for (const bool for_ever : {false, true}) {
    for (std::int64_t n = 1; n <= calls; ++n) {
      SCOPED_TRACE("call " + std::to_string(n) + (for_ever ? " and all later ones" : ""));
      std::shared_ptr<PinnedModuleStager> stager;
      faults.fail(point, for_ever ? FaultWhen::from(n) : FaultWhen::nth(n), fault);
      const auto hits = faults.hits();
      try {
        stager = make();
        use(*stager);
      } catch (...) {
        EXPECT_EQ(stager, nullptr) << "only the construction may throw here";
      }
      EXPECT_GT(faults.hits(), hits);
      faults.clear();

      if (stager == nullptr) stager = make();
      EXPECT_FALSE(stager->is_loaded());
      EXPECT_EQ(simulator.memory().allocated, 0);
      expect_numbered(tensors);
      stager->load();
      expect_numbered(tensors);
      stager->offload();
      expect_numbered(tensors);
      stager->wait_copies();  // So that the next round's stager finds these masters idle.
    }
  }
  tensors = numbered_tensors(0, 1);
  EXPECT_EQ(context->quarantined_bytes(), 0);
  EXPECT_EQ(context->abandoned_host_bytes(), 0);
  EXPECT_EQ(simulator.pinned_bytes(), pinned);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const FaultPoint point :
       {FaultPoint::kAllocate, FaultPoint::kCopy, FaultPoint::kRecord, FaultPoint::kWait,
        FaultPoint::kSynchronize, FaultPoint::kRegister, FaultPoint::kRelease}) {
    for (const Fault fault : {Fault::kOutOfMemory, Fault::kAccelerator, Fault::kLibTorch,
                              Fault::kStandard, Fault::kForeign}) {
      cases.push_back({point, fault});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, PinnedModuleStagerEveryFaultTest, ::testing::ValuesIn(all_cases()),
                         [](const auto& each) {
                           return std::string(to_string(each.param.point)) + "_" +
                                  std::to_string(static_cast<int>(each.param.fault));
                         });

}  // namespace
}  // namespace offstage
