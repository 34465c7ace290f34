// SPDX-License-Identifier: Apache-2.0
// Every call for host memory fails once, and from there on for ever, with every type of exception,
// in each part of a stager's life: nothing is lost, and the counts are right.
#include "staging_fixture.hpp"

#include <functional>
#include <map>
#include <stdexcept>

namespace offstage {
namespace {

enum class Call : std::uint8_t { kAllocate, kPin, kUnpin };

/// Takes memory from the simulator, whole or in slices; fails calls on request, and knows what is
/// allocated and what is pinned.
class ScriptedHostMemory final : public HostMemory {
 public:
  ScriptedHostMemory(std::shared_ptr<HostMemory> memory, std::int64_t slice_bytes_max)
      : memory_(std::move(memory)), slice_bytes_max_(slice_bytes_max) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "scripted"; }
  [[nodiscard]] bool pins() const noexcept override { return true; }
  [[nodiscard]] std::int64_t slice_bytes_max() const noexcept override { return slice_bytes_max_; }
  [[nodiscard]] void* allocate(std::int64_t bytes) override {
    enter(Call::kAllocate);
    void* const data = memory_->allocate(bytes);
    live[data] = bytes;
    return data;
  }
  void free(void* data, std::int64_t bytes) noexcept override {
    if (live.erase(data) != 1) wrong = true;
    for (const auto& [begin, length] : pinned) {
      const auto* const first = static_cast<std::byte*>(data);
      if (begin < first + bytes && first < static_cast<std::byte*>(begin) + length) wrong = true;
    }
    memory_->free(data, bytes);
  }
  void pin(void* data, std::int64_t bytes) override {
    enter(Call::kPin);
    memory_->pin(data, bytes);
    pinned[data] = bytes;
  }
  void unpin(void* data, std::int64_t bytes) override {
    enter(Call::kUnpin);
    memory_->unpin(data, bytes);
    if (pinned.erase(data) != 1) wrong = true;
  }

  /// From here on the n-th call of that kind fails, or all from there on; 0: none.
  void fail(Call call, int n, bool for_ever, std::function<void()> thrower) {
    call_ = call;
    n_ = n;
    for_ever_ = for_ever;
    thrower_ = std::move(thrower);
    calls = 0;
  }
  /// Gives up what was kept for ever.
  void clean_up() {
    fail(Call::kAllocate, 0, false, nullptr);
    while (!pinned.empty()) unpin(pinned.begin()->first, pinned.begin()->second);
    while (!live.empty()) free(live.begin()->first, live.begin()->second);
  }

  std::map<void*, std::int64_t> live;
  std::map<void*, std::int64_t> pinned;
  int calls = 0;       ///< Of the kind that is to fail.
  bool wrong = false;  ///< Something was freed twice, or while pinned, or was unpinned twice.

 private:
  void enter(Call call) {
    if (call != call_) return;
    ++calls;
    if (n_ != 0 && (calls == n_ || (for_ever_ && calls > n_))) thrower_();
  }

  const std::shared_ptr<HostMemory> memory_;
  const std::int64_t slice_bytes_max_;
  Call call_ = Call::kAllocate;
  int n_ = 0;
  bool for_ever_ = false;
  std::function<void()> thrower_;
};

struct Kind {
  const char* name;
  void (*thrower)();
};

const Kind kKinds[] = {
    {"HostMemoryError", [] { throw HostMemoryError("refused"); }},
    {"standard", [] { throw std::runtime_error("refused"); }},
    {"c10", [] { TORCH_CHECK(false, "refused"); }},
    {"out of memory", [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "refused"); }},
    {"foreign", [] { throw 7; }},  // NOLINT(hicpp-exception-baseclass)
};

std::int64_t sum_of(const std::map<void*, std::int64_t>& ranges) {
  std::int64_t sum = 0;
  for (const auto& [data, bytes] : ranges) sum += bytes;
  return sum;
}

/// Whether the provider pins slices or whole allocations, and whether pinning is strict.
using HostCase = std::tuple<std::int64_t, bool>;

class PinnedModuleStagerHostFaultTest : public StagingTest,
                                        public ::testing::WithParamInterface<HostCase> {
 protected:
  PinnedModuleStagerHostFaultTest() {
    context = DeviceContext::create(
        device(),
        {.host_memory = memory, .telemetry = telemetry, .sink = sink, .pinned_ledger = ledger});
  }

  /// Six chunks of a page; three slices of two, or six allocations. Once through a stager's life.
  /// @returns whether it could be built.
  bool live_once() {
    auto tensors = numbered_tensors(6, 1024);
    bool built = false;
    try {
      const auto stager =
          stage(tensors, {.strict_pinning = std::get<1>(GetParam()), .chunk_bytes_max = 4096});
      built = true;
      EXPECT_EQ(stager->pinned_bytes(), sum_of(memory->pinned));
      EXPECT_EQ(ledger->pinned_bytes(), sum_of(memory->pinned));
      stager->load();
      expect_numbered(tensors);
      stager->offload();
    } catch (...) {
      EXPECT_FALSE(built) << "only the construction may throw here";
    }
    expect_numbered(tensors);
    EXPECT_TRUE(tensors[0].tensor.device().is_cpu());
    EXPECT_EQ(ledger->promised_bytes(), 0);
    return built;
  }

  std::shared_ptr<ScriptedHostMemory> memory =
      std::make_shared<ScriptedHostMemory>(simulator.host_memory(), std::get<0>(GetParam()));
  std::shared_ptr<PinnedLedger> ledger = std::make_shared<PinnedLedger>();
};

TEST_P(PinnedModuleStagerHostFaultTest, LosesNothingWhicheverCallFailsAndHowever) {
  const auto pinned_before = simulator.pinned_bytes();
  for (const Call call : {Call::kAllocate, Call::kPin, Call::kUnpin}) {
    memory->fail(call, 0, false, nullptr);
    ASSERT_TRUE(live_once());
    const int calls = memory->calls;
    ASSERT_GT(calls, 0);
    for (const Kind& kind : kKinds) {
      for (const bool for_ever : {false, true}) {
        for (int n = 1; n <= calls; ++n) {
          SCOPED_TRACE("call " + std::to_string(n) + (for_ever ? " and later" : "") + " of kind " +
                       std::to_string(static_cast<int>(call)) + " throws " + kind.name);
          const auto abandoned = context->abandoned_host_bytes();
          memory->fail(call, n, for_ever, kind.thrower);
          const bool built = live_once();
          EXPECT_GE(memory->calls, n);
          const bool is_strict = std::get<1>(GetParam());
          EXPECT_EQ(built, call == Call::kUnpin || !is_strict);
          EXPECT_FALSE(memory->wrong);
          // What is left is what could not be unpinned: all of its reservation, and nothing else.
          EXPECT_EQ(memory->live.empty(), call != Call::kUnpin);
          EXPECT_EQ(context->abandoned_host_bytes() - abandoned, sum_of(memory->live));
          EXPECT_EQ(ledger->pinned_bytes(), sum_of(memory->pinned));
          EXPECT_EQ(simulator.memory().allocated, 0);
          EXPECT_EQ(simulator.pinned_bytes() - pinned_before, sum_of(memory->pinned));
          ledger->unpinned(ledger->pinned_bytes());
          memory->clean_up();
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PinnedModuleStagerHostFaultTest,
                         ::testing::Combine(::testing::Values(0, 8192), ::testing::Bool()),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param) == 0 ? "Whole" : "Slices") +
                                  (std::get<1>(each.param) ? "Strict" : "");
                         });

}  // namespace
}  // namespace offstage
