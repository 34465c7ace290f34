// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What becomes of changes that a component's body makes to its weights on the device.

#include <offstage/base/config.hpp>

#include <cstdint>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// What an offload does about staged tensors that were written on the device since the load.
///
/// A write is seen by the tensor's version counter, as in-place operations of LibTorch raise it.
/// Inference tensors have no counter, and buffers can be written without it (running statistics):
/// for all policies but `kIgnore` their bytes are compared with the masters, which copies them to
/// the host and waits; `kWriteBack` copies them always. Writes to parameters that go round the
/// counter (`Tensor::data`, raw pointers) are seen by nobody.
enum class EditPolicy : std::uint8_t {
  kIgnore,     ///< They are lost, without a check.
  kDetect,     ///< They are lost and reported: `EventKind::kEditLost`, `StagerCounters`.
  kReject,     ///< They are lost, and the offload, otherwise done, throws and names the tensors.
  kWriteBack,  ///< They are copied into the masters before the device memory is dropped; the host
               ///< waits for that if there is any.
};

/// The stable spelling: "ignore", "detect", "reject", "write_back".
[[nodiscard]] constexpr std::string_view to_string(EditPolicy policy) noexcept {
  switch (policy) {
    case EditPolicy::kIgnore:
      return "ignore";
    case EditPolicy::kDetect:
      return "detect";
    case EditPolicy::kReject:
      return "reject";
    case EditPolicy::kWriteBack:
      return "write_back";
  }
  return "unknown";
}

OFFSTAGE_NAMESPACE_END
