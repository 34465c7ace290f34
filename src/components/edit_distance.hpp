// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <offstage/base/config.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN

/// The least number of bytes to insert, delete or replace that turns `from` into `to`.
[[nodiscard]] inline std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row[to.size()];
}

OFFSTAGE_NAMESPACE_END
