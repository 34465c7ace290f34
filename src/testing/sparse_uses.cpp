// SPDX-License-Identifier: Apache-2.0
#include "sparse_uses.hpp"

#include <unordered_set>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

struct LayoutHash {
  std::size_t operator()(const ByteLayout* layout) const noexcept { return layout->hash(); }
};

struct LayoutEqual {
  bool operator()(const ByteLayout* left, const ByteLayout* right) const noexcept {
    return *left == *right;
  }
};

}  // namespace

void SparseUses::add(const Touch& touch, const VectorClock& host) {
  begin_ = std::min(begin_, touch.layout().begin());
  end_ = std::max(end_, touch.layout().end());
  List& list = lists_[touch.actor()];
  list.touches.push_back(touch);
  if (list.touches.size() >= list.size_to_thin_at) list.thin(host[touch.actor()]);
}

// Keeps the last use, and of the others those that the host has not waited for and that no later
// one of the same bytes stands for: whatever is unordered with the earlier is so with the later.
void SparseUses::List::thin(std::uint64_t host_knows) {
  std::unordered_set<const ByteLayout*, LayoutHash, LayoutEqual> later;
  std::vector<Touch> kept;
  for (auto touch = touches.rbegin(); touch != touches.rend(); ++touch) {
    if (!kept.empty() && touch->number() <= host_knows) break;
    if (later.insert(&touch->layout()).second) kept.push_back(*touch);
  }
  std::ranges::reverse(kept);
  touches = std::move(kept);
  size_to_thin_at = std::max<std::size_t>(64, 2 * touches.size());
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
