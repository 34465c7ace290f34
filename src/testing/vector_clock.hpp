// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// How far one actor has seen the others get.

#include <offstage/base/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// A stream, or the host, as the race checker counts them: 0 is the host.
using ActorId = std::size_t;
inline constexpr ActorId kHost = 0;

/// For each actor the number of its last task that happened before. L. Lamport's happens-before
/// relation, kept as the vector clocks of C. Fidge and F. Mattern (1988).
class VectorClock {
 public:
  [[nodiscard]] std::uint64_t operator[](ActorId actor) const noexcept {
    return actor < counts_.size() ? counts_[actor] : 0;
  }

  void set(ActorId actor, std::uint64_t count) {
    if (actor >= counts_.size()) counts_.resize(actor + 1);
    counts_[actor] = count;
  }

  /// Everything that happened before `other` now happened before this one too.
  void join(const VectorClock& other) {
    if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
    for (std::size_t i = 0; i < other.counts_.size(); ++i) {
      counts_[i] = std::max(counts_[i], other.counts_[i]);
    }
  }

 private:
  std::vector<std::uint64_t> counts_;
};

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
