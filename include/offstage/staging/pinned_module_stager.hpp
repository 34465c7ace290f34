// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Moves the tensors of one component between host masters and a device.

#include <offstage/base/bytes.hpp>
#include <offstage/base/config.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/device/pinned_budget.hpp>
#include <offstage/staging/audit_report.hpp>
#include <offstage/staging/edit_policy.hpp>
#include <offstage/staging/named_tensor.hpp>
#include <offstage/staging/stageable.hpp>

#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN

class BoundedAllocatorCache;  // <offstage/retention/bounded_allocator_cache.hpp>

/// What happens to tensors that lie in host memory which is pinned for the device already.
enum class PinnedSources : std::uint8_t {
  /// They are copied into masters like all others: what becomes of their old memory is no matter.
  kCopy,
  /// They stay where they are, and their memory becomes their master: no copy, no new host memory.
  /// It is kept alive for as long as a tensor is bound to it. Whoever else holds it must not write
  /// to it or unpin it meanwhile. Each storage must start at a multiple of the alignment and lie in
  /// one registration; it is moved as a chunk of its own.
  kAdopt,
};

/// How a stager lays out and pins its masters.
struct StagerOptions {
  /// Name of the component, for messages and events.
  std::string name = "component";
  /// False: masters stay pageable, and loads block the host while they copy.
  bool pin_memory = true;
  /// True: pinned memory that cannot be had is an error. False: the masters, or those chunks that
  /// cannot be pinned, are pageable, with one warning (`EventKind::kPinningFailed`). Says nothing
  /// where `pin_memory` is false.
  bool strict_pinning = false;
  /// How much may be pinned. Where it is too little for all, the largest chunks that fit are pinned
  /// and the others are pageable, with one warning; under `strict_pinning` that is an error before
  /// anything is changed.
  PinnedBudget pinned_budget = {};
  /// Whether tensors in pinned memory are copied. `kAdopt` needs `pin_memory`.
  PinnedSources pinned_sources = PinnedSources::kCopy;
  /// Alignment of each storage in bytes, a power of two from 16 to 4096 (a page of the host). The
  /// default is what device allocators give themselves; below 256 the results may differ from an
  /// unstaged run.
  std::int64_t alignment = 512;
  /// Upper bound in bytes of one piece of device memory and of one copy. A component is moved in as
  /// few pieces as this allows; a single storage is never split.
  std::int64_t chunk_bytes_max = 512 * kMiB;
  /// What becomes of writes to the device copies.
  EditPolicy edits = EditPolicy::kIgnore;
  /// Keep a checksum of each storage's master, for `corrupted_masters()`.
  bool checksum_masters = false;
  /// True: an audit that is not clean is an error (see `audit()`). False: it is reported, one
  /// `EventKind::kAuditFinding` for each finding.
  bool strict_audit = false;
  /// If given, run once at construction, on the host, before anything is changed: tensors that it
  /// computes with and that are not listed become findings of the audit (see `audit_trial_run`). It
  /// should make its inputs itself, or they are found too.
  std::function<void()> trial_run = nullptr;
  /// If given, lists the module's tensors anew at each load that moves it
  /// (`tensor_source(module)`): a tensor that appeared or vanished since is an error.
  std::function<std::vector<NamedTensor>()> source = nullptr;
};

/// What a stager did so far. Each is a sum since its construction.
struct StagerCounters {
  std::int64_t loads = 0;     ///< Loads that moved the component; no-ops do not count.
  std::int64_t offloads = 0;  ///< The same for offloads.
  std::int64_t out_of_memory_retries = 0;
  std::int64_t forced_releases = 0;  ///< One for each failed attempt.
  std::int64_t allocations = 0;      ///< Pieces of device memory asked for and got.
  std::int64_t copies = 0;           ///< Copies to the device queued.
  std::int64_t copies_back = 0;      ///< Copies into masters queued.
  std::int64_t edits_lost = 0;       ///< Storages written on the device, seen and not kept.
  std::int64_t edits_kept = 0;       ///< Storages that an offload wrote back.
  std::int64_t event_records = 0;
  std::int64_t stream_waits = 0;  ///< A stream made to wait for an event.
  std::int64_t host_waits = 0;    ///< The host made to wait for a stream (releases not counted).
};

/// Keeps one component (a module, several modules, or a list of tensors) in host memory of exact
/// size, and copies it to a device when it is needed.
///
/// After construction every tensor is bound to its *master*, memory of this object on the host.
/// `load()` copies the masters to the device and binds the tensors to the copies; `offload()` binds
/// them back and drops the copies. What is written to the device copies is lost at the next
/// offload, unless `StagerOptions::edits` says otherwise; `update()` writes both sides.
///
/// @par What is kept
/// Tensors that share memory still share it, on either side; sizes, strides, dtypes, conj and neg
/// bits, requires_grad and hooks stay. Every handle to a managed tensor sees each move, because the
/// tensor itself is re-bound.
///
/// @par Streams
/// A load allocates and copies on the context's copy stream, and makes the calling thread's current
/// stream wait for the copies; the host does not wait. An offload makes the copy stream wait for
/// every stream that a load made wait or that `use_on()` declared, and for the one current at the
/// offload; the host does not wait, unless the allocator's cache is released.
/// `Tensor::record_stream` has no effect on staged tensors: declare other streams with `use_on()`.
///
/// @par Threads
/// All members may be called concurrently; they run one after another. Moving a component while
/// another thread computes with it is a data race of that program.
///
/// @par Errors
/// If a load fails, the component is as before it: bound to its masters. Out of memory is met by a
/// release of the allocator's cache and exactly one more try. If an offload fails, the component is
/// bound to its masters all the same. Every failed attempt is followed by one forced release.
///
/// @par Ownership
/// Shares the tensors with their modules. The masters live as long as any tensor is bound to them,
/// also beyond this object.
class PinnedModuleStager final : public Stageable {
 public:
  /// Takes over the tensors: checks them all, copies them into masters, binds them there, and frees
  /// what held them before.
  ///
  /// @param tensors  What `named_tensors()` lists, or a list made by hand.
  /// @param context  The device, shared with all others that stage there. Not null.
  /// @throws InvalidArgument for a null context, or options out of range.
  /// @throws StagingError naming the tensor that cannot be staged; nothing was changed.
  /// @throws HostMemoryError if the host memory cannot be had, the budget cannot be read or is too
  ///         small for `strict_pinning` (nothing was changed); or if memory cannot be pinned and
  ///         `strict_pinning` asks for it (values and devices are as before).
  PinnedModuleStager(std::vector<NamedTensor> tensors, std::shared_ptr<DeviceContext> context,
                     StagerOptions options = {});

  PinnedModuleStager(const PinnedModuleStager&) = delete;
  PinnedModuleStager& operator=(const PinnedModuleStager&) = delete;
  PinnedModuleStager(PinnedModuleStager&&) = delete;
  PinnedModuleStager& operator=(PinnedModuleStager&&) = delete;

  /// Binds the tensors to their masters and drops the device memory, and never throws. Does not
  /// wait unless `StagerOptions::edits` has to look at or keep edits; so copies that loads have
  /// queued may still be reading the masters: before the tensors are written to on the host, wait
  /// for the context's copy stream.
  ~PinnedModuleStager() override;

  /// Binds the component to device memory. If it is loaded already, only makes the current stream
  /// wait until its copies are there.
  /// @throws c10::OutOfMemoryError if it does not fit even after a release.
  /// @throws StateError if a managed tensor was replaced, moved or reshaped since it was bound, or
  ///         in a forked child.
  void load() override;

  /// Binds the component back to its masters and drops the device memory; then lets the cache
  /// decide whether the allocator keeps it (without a cache, it is released). Nothing if it is not
  /// loaded.
  /// @throws StateError if user code replaced a managed tensor while it was loaded: that one is
  ///         left alone, all else is done.
  void offload() override;

  /// True: a failed attempt was already followed by a forced release when its error arrives.
  [[nodiscard]] bool handles_own_failures() const noexcept override { return true; }

  /// Declares that `stream` uses the component: it waits for the copies now, and the next offload
  /// waits for it.
  /// @throws StateError if the component is not loaded.
  /// @throws InvalidArgument if the stream is of another device.
  void use_on(const c10::Stream& stream);

  /// Attaches a cache, or detaches it with null. From the next offload on. For as long as it is
  /// attached, the cache's ledger holds the bytes of the component's storages, each once and not
  /// rounded; adapters count while they are there. Attaching the same cache again changes nothing.
  /// @throws InvalidArgument if the cache is of another device; nothing was changed.
  void set_cache(std::shared_ptr<BoundedAllocatorCache> cache);

  /// Blocks the host until no copy reads the masters any more: only then may they be written.
  void wait_copies();

  /// Copies the device's bytes into the masters, behind the work of all users, and blocks the host
  /// until they are there. Nothing if not loaded.
  /// @throws StateError if user code replaced a managed tensor; nothing was copied.
  /// @throws what the device reports. The component stays loaded; masters of storages whose copy
  ///         failed hold either value.
  void write_back();

  /// Gives tensors new values (merging or switching an adapter), in the masters and, if loaded, on
  /// the device: work queued so far on the streams that use the component still sees the old
  /// values, later work the new ones. Blocks the host until the masters are free to be written.
  /// @param values  Paths as listed, each once; values of the same sizes and dtype, on any device.
  ///                They may be tensors of the component itself. Of tensors that share memory the
  ///                last value wins.
  /// @throws InvalidArgument naming the path, the found and the expected, or StateError if user
  ///         code replaced the tensor; nothing was changed.
  /// @throws what the device reports. If the masters are written and the device cannot be, the
  ///         component is offloaded, with the new values, and one forced release was made.
  void update(const std::vector<NamedTensor>& values);

  /// Adopts more tensors (those of an adapter), as the constructor does. If the component is loaded
  /// they are loaded too, and the streams that use it wait for them. One more allocation and copy a
  /// load.
  /// @param name  For `remove()`; not empty, and not in use.
  /// @throws InvalidArgument, StagingError, HostMemoryError as the constructor; nothing was
  ///         changed.
  /// @throws what the device reports. The tensors are adopted, all of the component is offloaded,
  ///         and one forced release was made.
  void add(const std::string& name, std::vector<NamedTensor> tensors);

  /// Gives up what `add(name)` adopted: the tensors are bound to host memory for good, which they
  /// own from now on, and may be written at once. Blocks the host until copies queued by loads have
  /// read it, and orders the copy stream behind the users, like an offload.
  /// @throws InvalidArgument if nothing was added under the name.
  /// @throws what an offload throws; it is given up all the same.
  void remove(const std::string& name);

  /// The paths of tensors whose masters are not the bytes that the stager wrote there: something
  /// else has written them. Reads every master.
  /// @throws StateError if `StagerOptions::checksum_masters` is off.
  [[nodiscard]] std::vector<std::string> corrupted_masters() const;

  /// What was found when the tensors were adopted: tensors that share memory with listed ones and
  /// are not listed, and those that the trial run met. Tied tensors are listed too; they are no
  /// defect.
  [[nodiscard]] AuditReport audit() const;

  [[nodiscard]] bool is_loaded() const;
  [[nodiscard]] const std::string& name() const noexcept;

  /// Device memory of one load, in bytes: each storage rounded up to the alignment.
  [[nodiscard]] std::int64_t bytes() const noexcept override;
  [[nodiscard]] c10::Device device() const noexcept override;
  /// Host memory of the masters that is pinned, in bytes; adopted memory counts.
  [[nodiscard]] std::int64_t pinned_bytes() const noexcept;
  /// Host memory that was taken for the masters, pinned or not, in bytes: whole pages, or what else
  /// the provider rounds to. Adopted memory does not count.
  [[nodiscard]] std::int64_t host_bytes() const noexcept;
  /// Pinned memory of others that serves as masters, in bytes.
  [[nodiscard]] std::int64_t adopted_bytes() const noexcept;
  /// Pieces in which a load moves the component.
  [[nodiscard]] std::size_t chunk_count() const noexcept;
  /// Storages (sets of tensors that share memory) and tensors under management.
  [[nodiscard]] std::size_t storage_count() const noexcept;
  [[nodiscard]] std::size_t tensor_count() const noexcept;
  /// Device memory in bytes that offloads dropped and that user code still holds views of.
  [[nodiscard]] std::int64_t still_referenced_bytes() const;
  [[nodiscard]] StagerCounters counters() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

OFFSTAGE_NAMESPACE_END
