// SPDX-License-Identifier: Apache-2.0
#include <offstage/retention/retention_decision.hpp>

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

using Row = std::array<std::string, 9>;

std::string microseconds(std::chrono::nanoseconds duration) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << static_cast<double>(duration.count()) / 1000.0;
  return text.str();
}

Row row_of(const RetentionDecision& decision) {
  const auto figure = [&](std::int64_t bytes) {
    return decision.figures ? std::to_string(bytes) : std::string("-");
  };
  const MemoryFigures figures = decision.figures.value_or(MemoryFigures{});
  return {std::string(to_string(decision.reason)),
          figure(figures.cached()),
          std::to_string(decision.bound),
          figure(decision.releasable),
          figure(figures.device.free),
          figure(figures.device.total),
          std::to_string(decision.state.observed_peak),
          microseconds(decision.duration),
          decision.released ? "yes" : "no"};
}

}  // namespace

std::string to_text(std::span<const RetentionDecision> decisions) {
  std::vector<Row> rows = {
      {"reason", "cached", "bound", "releasable", "free", "total", "peak", "us", "released"}};
  for (const RetentionDecision& decision : decisions) rows.push_back(row_of(decision));
  std::array<std::size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      // The first column is a word, the others are figures and stand to the right.
      text += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    text += '\n';
  }
  return text;
}

OFFSTAGE_NAMESPACE_END
