// SPDX-License-Identifier: Apache-2.0
#include <offstage/base/error.hpp>

#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

std::string policy_message(const std::string& pointer, const std::string& expected,
                           const std::string& found) {
  const std::string where = pointer.empty() ? "the document" : "'" + pointer + "'";
  return "component policy: at " + where + ": expected " + expected + ", found " + found;
}

}  // namespace

// Out of line, so that the type information exists once and a catch clause in another shared
// library recognises it.
Error::~Error() = default;
InvalidArgument::~InvalidArgument() = default;
PolicyError::~PolicyError() = default;
StateError::~StateError() = default;
StagingError::~StagingError() = default;
TelemetryError::~TelemetryError() = default;
HostMemoryError::~HostMemoryError() = default;
CheckpointError::~CheckpointError() = default;

PolicyError::PolicyError(std::string pointer, std::string expected, std::string found)
    : Error(policy_message(pointer, expected, found)),
      pointer_(std::move(pointer)),
      expected_(std::move(expected)),
      found_(std::move(found)) {}

OFFSTAGE_NAMESPACE_END
