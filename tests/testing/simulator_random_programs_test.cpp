// SPDX-License-Identifier: Apache-2.0
// Random programs on streams and events, beside a model that decides by the full happens-before
// closure: no race is missed, none is invented, and programs without one compute the right bytes.
#include <offstage/testing/simulator.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace offstage::testing {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kPrograms = 1'000;
#else
constexpr int kPrograms = 10'000;
#endif
constexpr std::size_t kElements = 8;
constexpr std::size_t kNodesMax = 128;

/// Every node (a task, or a wait of the host) with the set of all nodes that happened before it.
class NaiveOrder {
 public:
  using Past = std::bitset<kNodesMax>;

  explicit NaiveOrder(std::size_t streams) : streams_(streams) {}

  /// A task: after its stream and after what the host had waited for. @returns its number.
  std::size_t task(std::size_t stream) {
    streams_[stream] |= host_;
    const std::size_t node = pasts_.size();
    pasts_.push_back(streams_[stream]);
    streams_[stream].set(node);
    return node;
  }
  /// A task that also comes after `seen`, which its stream's later tasks do not.
  std::size_t task_behind(std::size_t stream, const Past& seen) {
    const std::size_t node = task(stream);
    pasts_[node] |= seen;
    return node;
  }
  [[nodiscard]] Past record(std::size_t stream) const { return streams_[stream] | host_; }
  void wait(std::size_t stream, const Past& event) { streams_[stream] |= event; }
  void host_wait(const Past& event) { host_ |= event; }
  [[nodiscard]] bool before(std::size_t first, std::size_t second) const {
    return pasts_[second].test(first);
  }
  [[nodiscard]] std::size_t size() const { return pasts_.size(); }

 private:
  std::vector<Past> streams_;
  Past host_;
  std::vector<Past> pasts_;
};

/// One buffer, on the device or pinned, and what a sequential run makes of it.
struct Buffer {
  at::Tensor tensor;
  std::size_t stream = 0;  ///< Allocated there.
  std::vector<std::int32_t> expected = std::vector<std::int32_t>(kElements);
  struct Use {
    std::size_t node;
    std::size_t begin;
    std::size_t end;
    bool writes;
  };
  std::vector<Use> uses;
};

/// One program: made, run and judged step by step.
class Program {
 public:
  Program(Simulator& simulator, const std::vector<c10::Stream>& streams, std::uint32_t seed)
      : simulator_(simulator), streams_(streams), random_(seed), order_(streams.size()) {
    forgetful_ = pick(0, 1) == 1;
    for (int i = 0; i < 2; ++i) buffers_.push_back(on_device());
    for (int i = 0; i < 2; ++i) {
      Buffer host;
      host.tensor = at::zeros({kElements}, at::TensorOptions().dtype(at::kInt).pinned_memory(true));
      buffers_.push_back(std::move(host));
    }
    for (std::size_t i = 0; i < 3; ++i) {
      events_.emplace_back(c10::DeviceType::PrivateUse1);
      pasts_.emplace_back();
    }
  }

  /// Runs up to 25 steps, or to the first race. @returns what is wrong with the checker, if
  /// anything.
  std::string run() {
    for (int step = 0; step < 25 && order_.size() + 8 < kNodesMax; ++step) {
      racy_ = false;
      try {
        log_ += one_step() + "\n";
      } catch (const RaceError&) {
        log_ += "a task that was not queued\n";
      }
      const bool found = !simulator_.races().empty();
      if (found != racy_) {
        return std::string(found ? "invented: " + simulator_.races()[0].text : "missed") +
               "\nafter\n" + log_;
      }
      if (found) return "";
    }
    ran_to_the_end_ = true;
    for (const c10::Stream& stream : streams_) stream.synchronize();
    for (const Buffer& buffer : buffers_) {
      const at::Tensor host = buffer.tensor.cpu();
      const auto* values = host.const_data_ptr<std::int32_t>();
      if (!std::equal(values, values + kElements, buffer.expected.begin())) {
        return "wrong bytes after\n" + log_;
      }
    }
    return "";
  }

  [[nodiscard]] bool ran_to_the_end() const { return ran_to_the_end_; }

 private:
  std::size_t pick(std::size_t low, std::size_t high) {
    return std::uniform_int_distribution<std::size_t>(low, high)(random_);
  }

  Buffer on_device() {
    Buffer buffer;
    buffer.stream = pick(0, streams_.size() - 1);
    const c10::StreamGuard guard(streams_[buffer.stream]);
    const auto value = static_cast<std::int32_t>(pick(1, 1000));
    buffer.tensor = at::full({kElements}, value,
                             at::TensorOptions().dtype(at::kInt).device(simulator_.device()));
    buffer.expected.assign(kElements, value);
    use(buffer, order_.task(buffer.stream), 0, kElements, true);
    return buffer;
  }

  /// Notes a use, and whether it races with an earlier one.
  void use(Buffer& buffer, std::size_t node, std::size_t begin, std::size_t end, bool writes) {
    for (const Buffer::Use& earlier : buffer.uses) {
      racy_ = racy_ || (earlier.begin < end && begin < earlier.end && (writes || earlier.writes) &&
                        earlier.node != node && !order_.before(earlier.node, node));
    }
    buffer.uses.push_back({node, begin, end, writes});
  }

  /// Orders `stream` behind all uses of a buffer, except for the times that this is forgotten.
  void order_behind(const Buffer& buffer, std::size_t stream) {
    if (forgetful_ && pick(0, 5) == 0) return;
    for (std::size_t other = 0; other < streams_.size(); ++other) {
      if (other == stream || buffer.uses.empty()) continue;
      c10::Event event(c10::DeviceType::PrivateUse1);
      event.record(streams_[other]);
      event.block(streams_[stream]);
      order_.wait(stream, order_.record(other));
    }
  }

  std::string one_step() {
    switch (pick(0, 9)) {
      case 0:
        return record_event();
      case 1:
        return wait_for_event();
      case 2:
        return synchronize();
      case 3:
        return free_and_allocate();
      case 4:
      case 5:
      case 6:
        return kernel();
      default:
        return copy();
    }
  }

  std::string record_event() {
    const std::size_t event = pick(0, events_.size() - 1);
    const std::size_t stream = pick(0, streams_.size() - 1);
    events_[event].record(streams_[stream]);
    pasts_[event] = order_.record(stream);
    return "record " + std::to_string(event) + " on " + std::to_string(stream);
  }

  std::string wait_for_event() {
    const std::size_t event = pick(0, events_.size() - 1);
    const std::size_t stream = pick(0, streams_.size() - 1);
    events_[event].block(streams_[stream]);
    order_.wait(stream, pasts_[event]);
    return "wait for " + std::to_string(event) + " on " + std::to_string(stream);
  }

  std::string synchronize() {
    const std::size_t stream = pick(0, streams_.size() - 1);
    if (pick(0, 3) == 0) {
      streams_[stream].synchronize();
      order_.host_wait(order_.record(stream));
      return "synchronize " + std::to_string(stream);
    }
    const bool reached = streams_[stream].query();
    if (reached) order_.host_wait(order_.record(stream));
    return "query " + std::to_string(stream) + (reached ? ": yes" : ": no");
  }

  std::string free_and_allocate() {
    Buffer& buffer = buffers_[pick(0, 1)];
    const std::size_t stream = buffer.stream;
    std::string text = "free of a block of " + std::to_string(stream);
    NaiveOrder::Past seen;
    if (pick(0, 1) == 1) {
      const bool some = forgetful_ && pick(0, 1) == 1;
      for (std::size_t user = 0; user < streams_.size(); ++user) {
        if (some && pick(0, 2) == 0) continue;
        buffer.tensor.record_stream(streams_[user]);
        seen |= order_.record(user);
        text += ", recorded on " + std::to_string(user);
      }
    } else {
      order_behind(buffer, stream);
    }
    use(buffer, order_.task_behind(stream, seen), 0, kElements, true);
    buffer.tensor.reset();
    if (racy_) return text;
    buffer = on_device();
    return text;
  }

  std::string kernel() {
    Buffer& buffer = buffers_[pick(0, 1)];
    const std::size_t stream = pick(0, streams_.size() - 1);
    const std::size_t begin = pick(0, kElements - 1);
    const std::size_t end = pick(begin + 1, kElements);
    order_behind(buffer, stream);
    const c10::StreamGuard guard(streams_[stream]);
    use(buffer, order_.task(stream), begin, end, true);
    buffer.tensor
        .narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin))
        .mul_(3);
    for (std::size_t i = begin; i < end; ++i) {
      buffer.expected[i] =
          static_cast<std::int32_t>(3U * static_cast<std::uint32_t>(buffer.expected[i]));
    }
    return "kernel on " + std::to_string(stream);
  }

  std::string copy() {
    const std::size_t from = pick(0, buffers_.size() - 1);
    std::size_t to = pick(0, buffers_.size() - 2);
    if (to >= from) ++to;
    if (from >= 2 && to >= 2) to = pick(0, 1);
    const std::size_t stream = pick(0, streams_.size() - 1);
    const std::size_t begin = pick(0, kElements - 1);
    const std::size_t end = pick(begin + 1, kElements);
    Buffer& source = buffers_[from];
    Buffer& target = buffers_[to];
    order_behind(source, stream);
    order_behind(target, stream);
    const c10::StreamGuard guard(streams_[stream]);
    const std::size_t node = order_.task(stream);
    use(source, node, begin, end, false);
    use(target, node, begin, end, true);
    const auto part = [&](const Buffer& buffer) {
      return buffer.tensor.narrow(0, static_cast<std::int64_t>(begin),
                                  static_cast<std::int64_t>(end - begin));
    };
    part(target).copy_(part(source), /*non_blocking=*/true);
    for (std::size_t i = begin; i < end; ++i) target.expected[i] = source.expected[i];
    return "copy " + std::to_string(from) + " to " + std::to_string(to) + " on " +
           std::to_string(stream);
  }

  Simulator& simulator_;
  const std::vector<c10::Stream>& streams_;
  std::mt19937 random_;
  NaiveOrder order_;
  bool forgetful_ = false;
  bool racy_ = false;
  bool ran_to_the_end_ = false;
  std::vector<Buffer> buffers_;  // Two on the device, two pinned.
  std::deque<c10::Event> events_;
  std::vector<NaiveOrder::Past> pasts_;
  std::string log_;
};

TEST(SimulatorRandomProgramsTest, FindTheRacesThatTheFullClosureFindsAndTheRightBytes) {
  // Without poison, which would be most of the work.
  Simulator& simulator = Simulator::install({.device_count = 1, .poison = false});
  const c10::impl::VirtualGuardImpl guard(simulator.device().type());
  std::vector<c10::Stream> streams = {guard.getDefaultStream(simulator.device())};
  for (int i = 0; i < 3; ++i) streams.push_back(guard.getNewStream(simulator.device()));
  int ordered = 0;
  for (int seed = 0; seed < kPrograms; ++seed) {
    simulator.reset();
    Program program(simulator, streams, static_cast<std::uint32_t>(seed));
    ASSERT_EQ(program.run(), "") << "seed " << seed;
    ordered += program.ran_to_the_end() ? 1 : 0;
    try {
      simulator.synchronize();
    } catch (const RaceError&) {
      EXPECT_FALSE(program.ran_to_the_end()) << "a free has raced";
    }
  }
  EXPECT_GT(ordered, kPrograms / 4);
  EXPECT_LT(ordered, 3 * kPrograms / 4);
}

}  // namespace
}  // namespace offstage::testing
