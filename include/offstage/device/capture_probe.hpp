// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Tells whether a device is recording a graph.

#include <offstage/base/config.hpp>

#include <c10/core/Stream.h>

OFFSTAGE_NAMESPACE_BEGIN

/// Answers whether work queued on a stream is being captured into a graph instead of run.
///
/// A move of weights must not become part of a graph: the graph would keep addresses that the next
/// offload gives away. LibTorch's generic interface cannot tell, so a device that has graphs
/// supplies a probe in `DeviceContextOptions`.
///
/// @par Threads
/// May be called concurrently.
class CaptureProbe {
 public:
  CaptureProbe() = default;
  CaptureProbe(const CaptureProbe&) = delete;
  CaptureProbe& operator=(const CaptureProbe&) = delete;
  CaptureProbe(CaptureProbe&&) = delete;
  CaptureProbe& operator=(CaptureProbe&&) = delete;
  virtual ~CaptureProbe() = default;

  /// True while work queued on `stream` goes into a graph. Must not wait, and must not disturb the
  /// capture.
  [[nodiscard]] virtual bool is_capturing(const c10::Stream& stream) const = 0;
};

OFFSTAGE_NAMESPACE_END
