// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// How much host memory may be pinned before the system or the container runs short.

#include <offstage/base/bytes.hpp>
#include <offstage/base/config.hpp>

#include <cstdint>
#include <string>

OFFSTAGE_NAMESPACE_BEGIN

/// What `read_host_budget()` leaves alone, and where it looks.
struct HostBudgetOptions {
  /// Bytes that stay available to everybody else. The default is enough for the heap of a server
  /// and the page cache of its weights files; raise it if other programs share the machine.
  std::int64_t reserve_bytes = kGiB;
  /// Bytes in use now that are given back while the pinned memory is filled: they count as
  /// available. A stager adds the memory that its tensors came from.
  std::int64_t released_bytes = 0;
  /// True: RLIMIT_MEMLOCK counts too, unless the process has CAP_IPC_LOCK. For memory that is
  /// pinned by `mlock`; drivers pin without asking that limit.
  bool bound_by_memlock = false;
  /// The folder that holds `proc` and `sys`. Another one than the default is for tests.
  std::string root = "/";
};

/// How much may be pinned, and what decided it.
struct HostBudget {
  std::int64_t bytes = 0;  ///< Never negative.
  /// "MemAvailable of /proc/meminfo", "memory.max of /sys/fs/cgroup/a", "RLIMIT_MEMLOCK".
  std::string decided_by;
};

/// Reads how much host memory may be pinned now, beyond what is pinned already.
///
/// The least of: MemAvailable of `/proc/meminfo`; and for the control group (version 2) of this
/// process and each of its parents `memory.max - (memory.current - reclaimable)`, where reclaimable
/// is the file cache, `active_file + inactive_file` of `memory.stat`. From that `reserve_bytes` are
/// taken off. With `bound_by_memlock` not more than RLIMIT_MEMLOCK leaves; nothing is reserved of
/// that.
///
/// A control group whose `memory.max` is "max", or whose `memory.max` or `memory.current` is
/// missing, sets no limit; without a `memory.stat` nothing of its use is reclaimable. Without
/// control groups the kernel's figure alone counts. Limits of control groups version 1 are not
/// read.
/// @throws InvalidArgument  for negative bytes in the options.
/// @throws HostMemoryError  naming the file and what is in it, if a file that is there does not
///                          read as it should, or if `/proc/meminfo` (with `bound_by_memlock` also
///                          `/proc/self/limits` or `/proc/self/status`) is missing.
[[nodiscard]] HostBudget read_host_budget(const HostBudgetOptions& options = {});

OFFSTAGE_NAMESPACE_END
