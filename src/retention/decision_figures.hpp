// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <offstage/base/event.hpp>
#include <offstage/retention/retention_decision.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// What the event of a decision carries, without an allocation. Figures that were not read are
/// left out.
class DecisionFigures {
 public:
  explicit DecisionFigures(const RetentionDecision& decision) noexcept {
    if (decision.figures) {
      const MemoryFigures& read = *decision.figures;
      add("cached", read.cached());
      add("releasable", decision.releasable);
      add("reserved", read.allocator.reserved);
      add("allocated", read.allocator.allocated);
      add("inactive_split", read.allocator.inactive_split);
      add("free", read.device.free);
      add("total", read.device.total);
    }
    add("bound", decision.bound);
    add("peak", decision.state.observed_peak);
    add("staged", decision.state.staged_bytes);
    add("released", decision.released ? 1 : 0);
  }

  [[nodiscard]] std::span<const EventFigure> view() const noexcept {
    return std::span(figures_).first(count_);
  }

 private:
  void add(std::string_view name, std::int64_t value) noexcept {
    figures_[count_++] = {name, value};
  }

  std::array<EventFigure, 11> figures_{};
  std::size_t count_ = 0;
};

}  // namespace detail
OFFSTAGE_NAMESPACE_END
