// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The moves of one component: what is allocated, copied, recorded, waited for and bound, in order.

#include "device_slab.hpp"
#include "staged_part.hpp"
#include "storage_group.hpp"

#include <offstage/base/config.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/device/stream_event.hpp>
#include <offstage/staging/pinned_module_stager.hpp>

#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// Moves a component between its masters and device memory. Each move prepares all that can fail,
/// and only then binds the tensors, which cannot.
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

  /// Binds to the masters and drops the device memory. Never throws.
  ~ComponentMover();

  /// Loads, and makes the current stream wait for the copies; if loaded already, only that.
  /// On an error nothing was bound and no device memory is left.
  /// @return  False if it was loaded already.
  bool load(Pieces pieces);

  /// Orders the copy stream behind all users, binds to the masters, drops the device memory. On an
  /// error all that is done too, but for what the error tells of. Nothing if not loaded.
  void offload();

  void use_on(const c10::Stream& stream);
  void wait_copies();

  /// Copies the device's bytes into the masters and waits for that. Nothing if not loaded.
  void write_back();
  /// Writes values into the masters, and to the device if loaded. If that last step fails, the
  /// component is offloaded, with the new values.
  void update(const std::vector<NamedTensor>& values);
  /// Adopts more tensors. If loaded, they are loaded too; if that fails, all is offloaded.
  void add(std::string name, StagingLayout layout);
  /// Gives up what was added under a name. Its tensors stay on their masters.
  void remove(const std::string& name);
  /// The paths of tensors whose masters are not what they were when written last.
  [[nodiscard]] std::vector<std::string> corrupted_paths();

  [[nodiscard]] bool is_loaded() const noexcept { return parts_.front()->is_loaded(); }
  [[nodiscard]] std::span<const std::unique_ptr<StagedPart>> parts() const noexcept {
    return parts_;
  }
  [[nodiscard]] std::int64_t bytes() const noexcept;
  [[nodiscard]] std::int64_t still_referenced_bytes() const;

 private:
  using Parts = std::span<const std::unique_ptr<StagedPart>>;
  using Groups = std::vector<std::size_t>;  // Of one part.
  struct Place {
    std::size_t part = 0;
    std::size_t tensor = 0;
  };

  void check_list() const;
  void report_grad_mode();
  void record(StreamEvent& event, const c10::Stream& stream);
  void wait_ready(const c10::Stream& stream);
  void wait_ready_on_all_users();
  [[nodiscard]] std::exception_ptr order_copies_behind_users() noexcept;
  void leave(Parts parts, const std::vector<Groups>& settled = {});
  void leave_after_failure(Parts parts, const std::vector<Groups>& settled = {}) noexcept;
  void keep_or_report_edits(Parts parts, const std::vector<Groups>& settled, bool can_copy);
  void report_lost(StagedPart& part, const Groups& groups, std::string& paths) noexcept;
  [[nodiscard]] std::string bind_to_masters(Parts parts) noexcept;
  void drop_slabs(Parts parts, bool is_idle) noexcept;
  void report_still_referenced(StagedPart& part) noexcept;
  void copy_back(Parts parts, const std::vector<Groups>& groups);
  [[nodiscard]] Place find(const std::string& path) const;
  [[nodiscard]] std::vector<StagedPart::NewValues> check_values(
      const std::vector<NamedTensor>& values) const;
  [[nodiscard]] at::Tensor take_value(const at::Tensor& value) const;
  void keep_edits_beside(const std::vector<StagedPart::NewValues>& changes);
  void update_device(const std::vector<StagedPart::NewValues>& changes);
  void emit(EventKind kind, std::int64_t bytes, std::string_view message) const noexcept;

  const std::shared_ptr<DeviceContext> context_;
  const StagerOptions& options_;
  StagerCounters& counters_;
  std::vector<std::unique_ptr<StagedPart>> parts_;  // The first is what it was made with.

  StreamEvent ready_;  // The copies of the last load are done. Recorded on the copy stream.
  StreamEvent done_;   // The users of the component are done. Recorded on each in turn.
  std::vector<c10::Stream> users_;  // Of this load: streams that were made to wait for ready_.

  std::unordered_set<const c10::TensorImpl*> unlisted_;  // Staged by hand beside the source's list.
  std::vector<c10::weak_intrusive_ptr<DeviceSlab>> lingering_;  // Dropped, but still referenced.
  bool grad_mode_reported_ = false;
};

}  // namespace detail
OFFSTAGE_NAMESPACE_END
