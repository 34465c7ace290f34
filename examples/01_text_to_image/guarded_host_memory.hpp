// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Host memory that can be made unreadable: the proof that a component computes from its copy on
/// the device and not from its masters.

#include <offstage/device/host_memory.hpp>

#include <map>
#include <memory>
#include <mutex>

namespace text_to_image {

/// Takes its memory from another provider. Between `forbid()` and `allow()` every access to any of
/// it ends the program with exit code 3 and one line on stderr.
///
/// @par Threads
/// All members may be called concurrently. One object a process may forbid at a time.
class GuardedHostMemory final : public offstage::HostMemory {
 public:
  static constexpr int kExitCode = 3;

  explicit GuardedHostMemory(std::shared_ptr<offstage::HostMemory> from);
  ~GuardedHostMemory() override;

  [[nodiscard]] std::string_view name() const noexcept override { return from_->name(); }
  [[nodiscard]] bool pins() const noexcept override { return from_->pins(); }
  [[nodiscard]] void* allocate(std::int64_t bytes) override;
  void free(void* data, std::int64_t bytes) noexcept override;
  void pin(void* data, std::int64_t bytes) override { from_->pin(data, bytes); }
  void unpin(void* data, std::int64_t bytes) override { from_->unpin(data, bytes); }

  /// @pre Nothing queued on a device still reads this memory.
  void forbid();
  void allow() noexcept;

  /// Bytes under guard.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  void protect(int how) noexcept;

  const std::shared_ptr<offstage::HostMemory> from_;
  mutable std::mutex mutex_;
  std::map<void*, std::int64_t> ranges_;
};

}  // namespace text_to_image
