// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Tensors of a component that were adopted together: their masters, and their copy on the device.

#include "device_slab.hpp"
#include "masters.hpp"
#include "storage_group.hpp"

#include <offstage/base/config.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/staging/pinned_module_stager.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// In what pieces device memory is allocated and filled.
enum class Pieces : std::uint8_t { kChunks, kStorages };

/// One layout with its masters and, while loaded, its slab. Queues copies on the current stream;
/// which stream that is, what waits for what, and what follows a failure is its owner's business.
///
/// Not thread-safe.
class StagedPart {
 public:
  /// Builds the masters and binds the tensors to them; see `build_masters` for errors.
  /// `options` and `counters` must outlive this object.
  StagedPart(std::string name, StagingLayout layout, const std::shared_ptr<DeviceContext>& context,
             const StagerOptions& options, StagerCounters& counters);
  StagedPart(const StagedPart&) = delete;
  StagedPart& operator=(const StagedPart&) = delete;
  StagedPart(StagedPart&&) = delete;
  StagedPart& operator=(StagedPart&&) = delete;
  /// Its tensors may be staged anew. @pre not loaded.
  ~StagedPart();

  /// Empty for what the stager was made with, else the name it was added under.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const StagingLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] HostArena& arena() const noexcept { return *masters_.arena; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool is_loaded() const noexcept { return slab_ != nullptr; }

  /// @throws StateError that names the tensor if one is not bound to its master any more.
  void check_bound_to_masters() const;

  /// A load that is queued, and that no tensor shows yet. Dropping it undoes it.
  struct Prepared {
    c10::intrusive_ptr<DeviceSlab> slab;
    std::vector<std::byte*> places;  ///< Where each group is in it.
  };

  /// Allocates device memory and queues the copies of the masters.
  [[nodiscard]] Prepared prepare(Pieces pieces);
  void bind_to_device(Prepared prepared) noexcept;

  /// The indices of the tensors that are not ours any more; they are left alone.
  [[nodiscard]] std::vector<std::size_t> bind_to_masters() noexcept;

  /// True if the tensor is where it was bound last: nobody replaced, moved or reshaped it.
  [[nodiscard]] bool is_ours(std::size_t tensor) const noexcept;

  /// The groups that were, or may have been, written on the device since they were bound there.
  struct Edits {
    std::vector<std::size_t> groups;   ///< Written, by their version counters.
    std::vector<std::size_t> unknown;  ///< Groups with tensors whose versions do not tell.
  };
  [[nodiscard]] Edits edits() const;
  /// True if the device copy of a group differs from its master. Copies it to the host and waits.
  [[nodiscard]] bool differs_from_master(std::size_t group) const;
  /// Queues copies of these groups from the device into the masters.
  void copy_back(const std::vector<std::size_t>& groups);
  /// From here on `edits` counts from now: for all tensors, or for those of some groups.
  void note_versions();
  void note_versions(const std::vector<std::size_t>& groups);

  /// The values of this group's tensors go back to older ones: a graph that has saved the newer
  /// ones must notice.
  void raise_versions(std::size_t group) noexcept;

  /// New values for tensors, by their indices; on the host, and not in memory of masters.
  struct NewValues {
    std::vector<std::size_t> tensors;
    std::vector<at::Tensor> values;
  };
  /// Writes them into the masters; no edits in the sense of `edits`. The caller has waited for
  /// copies that read the masters.
  void write_masters(const NewValues& changes);
  /// Queues copies of these tensors' bytes from the masters to the device, and of no others: what
  /// was written there to another tensor of the same storage stays.
  void copy_again(const std::vector<std::size_t>& tensors);
  /// The groups of these tensors, in order, each once.
  [[nodiscard]] std::vector<std::size_t> groups_of(const std::vector<std::size_t>& tensors) const;

  /// True if the tensor, on the host, has elements in memory of a master.
  [[nodiscard]] bool is_in_masters(const at::Tensor& tensor) const;

  /// Masters of these groups are written on purpose.
  void forget_checksums(const std::vector<std::size_t>& groups) noexcept;
  /// Takes the checksums that are not known. @pre no copy writes the masters.
  void take_checksums() noexcept;
  /// Groups whose bytes are not those that were noted last. Waits for copies, if one that wrote
  /// masters could not be waited for.
  [[nodiscard]] std::vector<std::size_t> corrupted_groups();

  /// The paths of a group's tensors, with commas.
  [[nodiscard]] std::string paths_of(std::size_t group) const;
  /// The paths of tensors whose device storage somebody else holds. @pre bound to masters.
  [[nodiscard]] std::string paths_still_referenced() const;

  [[nodiscard]] const c10::intrusive_ptr<DeviceSlab>& slab() const noexcept { return slab_; }
  /// Gives the slab away; what somebody else holds of it goes along. @pre bound to masters.
  [[nodiscard]] c10::intrusive_ptr<DeviceSlab> take_slab() noexcept;

 private:
  [[nodiscard]] std::vector<std::size_t> corrupted_of(const std::vector<std::size_t>& groups) const;
  void make_device_storages(DeviceSlab& slab);
  void copy_to_device(const at::Tensor& to, const at::Tensor& from);

  const std::string name_;
  const std::shared_ptr<DeviceContext> context_;
  const StagerOptions& options_;
  StagerCounters& counters_;
  StagingLayout layout_;
  const std::int64_t bytes_;
  Masters masters_;
  // One for each group, if asked for; empty where the master's bytes are not known for certain.
  std::vector<std::optional<std::uint64_t>> checksums_;

  // One for each group, made once: a load gives them memory, an offload takes it away again. Null
  // where none was made yet, or where user code has kept the last one.
  std::vector<c10::Storage> device_storages_;
  std::vector<std::uint32_t> versions_;  // One for each tensor, of the current load.
  c10::intrusive_ptr<DeviceSlab> slab_;  // Of the current load; null when not loaded.
};

}  // namespace detail
OFFSTAGE_NAMESPACE_END
