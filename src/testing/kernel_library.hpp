// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Where kernels are registered at run time. Heavy: for the units that hold kernels.

#include <offstage/base/config.hpp>

#include <torch/library.h>

#include <deque>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// A library of kernels for one dispatch key that lives for ever: destroying it would take the
/// kernels back.
inline torch::Library& add_library(const char* name,
                                   c10::DispatchKey key = c10::DispatchKey::PrivateUse1) {
  static auto* const libraries = new std::deque<torch::Library>;
  return libraries->emplace_back(torch::Library::IMPL, name, key, __FILE__,
                                 static_cast<std::uint32_t>(__LINE__));
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
