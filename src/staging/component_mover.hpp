// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The moves of one component: what is allocated, copied, recorded, waited for and bound, in order.

#include "device_slab.hpp"
#include "masters.hpp"
#include "storage_group.hpp"

#include <offstage/base/config.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/device/stream_event.hpp>
#include <offstage/staging/pinned_module_stager.hpp>

#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// Moves a component between its masters and one slab of device memory. Each move prepares all that
/// can fail, and only then binds the tensors, which cannot.
///
/// Not thread-safe: its owner serialises the calls. Knows nothing of caches and retries.
class ComponentMover {
 public:
  /// Builds the masters. `options` and `counters` must outlive this object.
  ComponentMover(StagingLayout layout, std::shared_ptr<DeviceContext> context,
                 const StagerOptions& options, StagerCounters& counters);
  ComponentMover(const ComponentMover&) = delete;
  ComponentMover& operator=(const ComponentMover&) = delete;
  ComponentMover(ComponentMover&&) = delete;
  ComponentMover& operator=(ComponentMover&&) = delete;

  /// Binds to the masters and drops the slab. Never throws.
  ~ComponentMover();

  /// In what pieces device memory is allocated and filled.
  enum class Pieces : std::uint8_t { kChunks, kStorages };

  /// Loads, and makes the current stream wait for the copies; if loaded already, only that.
  /// On an error nothing was bound and no device memory is left.
  /// @return  False if it was loaded already.
  bool load(Pieces pieces);

  /// Orders the copy stream behind all users, binds to the masters, drops the slab. On an error all
  /// that is done too, but for what the error tells of. Nothing if not loaded.
  void offload();

  void use_on(const c10::Stream& stream);
  void wait_copies();

  [[nodiscard]] bool is_loaded() const noexcept { return slab_ != nullptr; }
  [[nodiscard]] const StagingLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::int64_t pinned_bytes() const noexcept {
    return masters_.arena->pinned_bytes();
  }
  [[nodiscard]] std::int64_t host_bytes() const noexcept { return masters_.arena->taken_bytes(); }
  [[nodiscard]] std::int64_t adopted_bytes() const noexcept {
    return masters_.arena->adopted_bytes();
  }
  [[nodiscard]] std::int64_t still_referenced_bytes() const;

 private:
  void check_bound_to_masters() const;
  void report_grad_mode();
  [[nodiscard]] std::vector<c10::Storage> fill(DeviceSlab& slab, Pieces pieces);
  void copy_to_device(const c10::Storage& to, const at::Tensor& from);
  void record(StreamEvent& event, const c10::Stream& stream);
  void wait_ready(const c10::Stream& stream);
  [[nodiscard]] std::exception_ptr order_copies_behind_users() noexcept;
  [[nodiscard]] std::string bind_to_masters() noexcept;
  void drop_slab(bool is_idle) noexcept;
  void report_still_referenced() noexcept;
  void emit(EventKind kind, std::int64_t bytes, std::string_view message) const noexcept;

  const std::shared_ptr<DeviceContext> context_;
  const StagerOptions& options_;
  StagerCounters& counters_;
  StagingLayout layout_;
  const std::int64_t bytes_;
  Masters masters_;

  StreamEvent ready_;  // The copies of the last load are done. Recorded on the copy stream.
  StreamEvent done_;   // The users of the component are done. Recorded on each in turn.

  // Of the current load; all empty when not loaded.
  c10::intrusive_ptr<DeviceSlab> slab_;
  std::vector<c10::Storage> device_storages_;  // One for each group.
  std::vector<c10::Stream> users_;             // Streams that were made to wait for ready_.

  std::vector<c10::weak_intrusive_ptr<DeviceSlab>> lingering_;  // Dropped, but still referenced.
  bool grad_mode_reported_ = false;
};

}  // namespace detail
OFFSTAGE_NAMESPACE_END
