// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Finds who else uses the memory that is about to change owner.

#include "storage_group.hpp"

#include <offstage/base/config.hpp>
#include <offstage/staging/audit_report.hpp>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// Tied tensors, and storages that somebody beside the listed tensors holds: a view kept as a plain
/// member, a tensor saved elsewhere. Found by reference counts, so who it is cannot be told.
/// @pre The layout still has its sources: nothing was changed yet.
[[nodiscard]] AuditReport audit_aliases(const StagingLayout& layout);

}  // namespace detail
OFFSTAGE_NAMESPACE_END
