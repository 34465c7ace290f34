// SPDX-License-Identifier: Apache-2.0
// Every call into the device that a change of the weights makes fails, once and from there on for
// ever: a tensor has its old value or its new one, and its master is what the stager wrote there.
#include "staging_fixture.hpp"

#include <map>

namespace offstage {
namespace {

using ::testing::AnyOf;
using testing::Fault;
using testing::FaultPoint;
using testing::FaultWhen;
using ::testing::IsEmpty;

using Case = std::tuple<FaultPoint, Fault, EditPolicy>;

class PinnedModuleStagerEveryChangeFaultTest : public StagingTest,
                                               public ::testing::WithParamInterface<Case> {
 protected:
  /// A tensor and the two values that it may have by now.
  struct Watched {
    at::Tensor tensor;
    float before;
    float after;
  };

  void build() {
    watched.clear();
    for (int i = 0; i < 4; ++i) {
      const auto value = static_cast<float>(i);
      watched["t" + std::to_string(i)] = {at::full({3 * kKiB}, value), value, value};
    }
    watched["lora.down"] = {at::full({64}, 5.0F), 5.0F, 5.0F};
    stager = stage({{"t0", watched["t0"].tensor},
                    {"t1", watched["t1"].tensor},
                    {"t2", watched["t2"].tensor},
                    {"t3", watched["t3"].tensor}},
                   {.chunk_bytes_max = 24 * kKiB,
                    .edits = std::get<EditPolicy>(GetParam()),
                    .checksum_masters = true});
  }

  bool attempt(auto&& call) {
    try {
      call();
    } catch (...) {
      return false;
    }
    return true;
  }

  void give(const std::string& path, float value) {
    Watched& each = watched[path];
    each.after = value;
    const bool done = attempt([&] {
      stager->update({{path, at::full(each.tensor.sizes(), value)}});
    });
    if (done) each.before = value;
    expect_one_place();
  }

  /// As the program's kernel would. Kept or lost, as the policy says; kept for certain, if written
  /// back by a call.
  void edit(const std::string& path, float value) {
    if (!stager->is_loaded()) return;
    Watched& each = watched[path];
    if (!attempt([&] { each.tensor.fill_(value); })) return;
    each.after = value;
  }

  void expect_one_place() {
    for (const auto& [path, each] : watched) {
      if (path == "lora.down" && !has_adapter) continue;
      ASSERT_EQ(each.tensor.device(), stager->is_loaded() ? device() : c10::Device(c10::kCPU))
          << path;
    }
  }

  void change_everything() {
    has_adapter = attempt([&] {
      stager->add("style", {{"lora.down", watched["lora.down"].tensor}});
    });
    attempt([&] { stager->load(); });
    give("t1", 11);
    edit("t2", 12);
    if (attempt([&] { stager->write_back(); }) && stager->is_loaded()) {
      watched["t2"].before = watched["t2"].after;
    }
    expect_one_place();
    edit("t3", 13);
    give("lora.down", 15);
    const bool removed = attempt([&] { stager->remove("style"); });
    has_adapter = false;
    EXPECT_TRUE(watched["lora.down"].tensor.is_cpu());
    expect_one_place();
    // Where the device could not be waited for, it may still be writing to what was removed.
    if (removed) {
      attempt([&] { stager->add("late", {{"lora.down", watched["lora.down"].tensor}}); });
    }
    attempt([&] { stager->offload(); });
    give("t0", 10);
    attempt([&] { stager->remove("late"); });
    EXPECT_FALSE(stager->is_loaded());
    expect_one_place();
  }

  std::map<std::string, Watched> watched;
  std::shared_ptr<PinnedModuleStager> stager;
  bool has_adapter = false;
};

TEST_P(PinnedModuleStagerEveryChangeFaultTest, LosesNothing) {
  const auto [point, fault, edits] = GetParam();
  testing::FaultScript& faults = simulator.faults();
  const auto pinned = simulator.pinned_bytes();
  build();
  const auto before = faults.calls(point);
  change_everything();
  const auto calls = faults.calls(point) - before;
  ASSERT_GT(calls, 0) << "a change makes no such call";
  for (const bool for_ever : {false, true}) {
    for (std::int64_t n = 1; n <= calls; ++n) {
      SCOPED_TRACE("call " + std::to_string(n) + (for_ever ? " and all later ones" : ""));
      build();
      const auto hits = faults.hits();
      faults.fail(point, for_ever ? FaultWhen::from(n) : FaultWhen::nth(n), fault);
      change_everything();
      EXPECT_GT(faults.hits(), hits);
      faults.clear();

      EXPECT_EQ(simulator.memory().allocated, 0);
      EXPECT_THAT(stager->corrupted_masters(), IsEmpty());
      for (const auto& [path, each] : watched) {
        const at::Tensor host = each.tensor.clone();
        const auto value = host[0].item<float>();
        EXPECT_THAT(value, AnyOf(each.before, each.after)) << path;
        EXPECT_TRUE(at::equal(host, at::full_like(host, value))) << path << " is torn";
      }
      stager->load();
      for (const auto& [path, each] : watched) {
        EXPECT_THAT(each.tensor.cpu()[0].item<float>(), AnyOf(each.before, each.after)) << path;
      }
      stager->offload();
      stager->wait_copies();
    }
  }
  stager.reset();
  watched.clear();
  EXPECT_EQ(context->quarantined_bytes(), 0);
  // Masters that cannot be awaited or unpinned are given up, and counted.
  if (point != FaultPoint::kSynchronize && point != FaultPoint::kUnregister) {
    EXPECT_EQ(context->abandoned_host_bytes(), 0);
  }
  EXPECT_EQ(simulator.pinned_bytes() - pinned, context->abandoned_host_bytes());
}

INSTANTIATE_TEST_SUITE_P(
    All, PinnedModuleStagerEveryChangeFaultTest,
    ::testing::Combine(
        ::testing::Values(FaultPoint::kAllocate, FaultPoint::kCopy, FaultPoint::kRecord,
                          FaultPoint::kWait, FaultPoint::kSynchronize, FaultPoint::kRegister,
                          FaultPoint::kUnregister, FaultPoint::kRelease),
        ::testing::Values(Fault::kOutOfMemory, Fault::kAccelerator, Fault::kForeign),
        ::testing::Values(EditPolicy::kIgnore, EditPolicy::kDetect, EditPolicy::kWriteBack)),
    [](const auto& each) {
      return std::string(to_string(std::get<0>(each.param))) + "_" +
             std::to_string(static_cast<int>(std::get<1>(each.param))) + "_" +
             std::to_string(static_cast<int>(std::get<2>(each.param)));
    });

}  // namespace
}  // namespace offstage
