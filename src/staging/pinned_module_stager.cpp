// SPDX-License-Identifier: Apache-2.0
#include "alias_audit.hpp"
#include "attached_cache.hpp"
#include "component_mover.hpp"

#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>
#include <offstage/staging/pinned_module_stager.hpp>
#include <offstage/staging/trial_run.hpp>

#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

StagerOptions checked_options(StagerOptions options) {
  if (!is_power_of_two(options.alignment) || options.alignment < 16 || options.alignment > 4096) {
    throw InvalidArgument("stager options of '" + options.name +
                          "': alignment must be a power of two from 16 to 4096, got " +
                          std::to_string(options.alignment));
  }
  if (options.chunk_bytes_max <= 0) {
    throw InvalidArgument("stager options of '" + options.name +
                          "': chunk_bytes_max must be more than 0, got " +
                          std::to_string(options.chunk_bytes_max));
  }
  if (options.pinned_sources == PinnedSources::kAdopt && !options.pin_memory) {
    throw InvalidArgument("stager options of '" + options.name +
                          "': pinned_sources = kAdopt needs pin_memory, which is false");
  }
  return options;
}

std::shared_ptr<DeviceContext> checked_context(std::shared_ptr<DeviceContext> context) {
  if (context == nullptr) throw InvalidArgument("stager: context must not be null");
  return context;
}

}  // namespace

/// Serialises the operations, and decides what follows a failure. What moves is `ComponentMover`.
class PinnedModuleStager::Impl {
 public:
  Impl(std::vector<NamedTensor> tensors, std::shared_ptr<DeviceContext> context,
       StagerOptions options)
      : context_(checked_context(std::move(context))),
        options_(checked_options(std::move(options))),
        mover_(lay_out(std::move(tensors), options_.trial_run), context_, options_, counters_) {}

  void load() {
    const CancellationDeferral deferral;  // A move is one step for a cancelled thread too.
    const std::lock_guard lock(mutex_);
    check_process("load");
    check_not_capturing("load");
    const auto start = std::chrono::steady_clock::now();
    bool out_of_memory = false;
    try {
      if (!mover_.load(detail::Pieces::kChunks)) return;
    } catch (const c10::OutOfMemoryError&) {
      // Only noted here: the exception can hold device memory, so it must be gone before the retry.
      out_of_memory = true;
    } catch (...) {
      release_forced();
      throw;
    }
    if (out_of_memory) retry_load();
    ++counters_.loads;
    emit(EventKind::kComponentLoaded, mover_.bytes(), start);
  }

  void offload() {
    const CancellationDeferral deferral;
    const std::lock_guard lock(mutex_);
    if (!mover_.is_loaded()) return;
    check_process("offload");
    check_not_capturing("offload");
    const auto start = std::chrono::steady_clock::now();
    try {
      mover_.offload();
      cache_.release_if_needed();
    } catch (...) {
      release_forced();
      throw;
    }
    ++counters_.offloads;
    emit(EventKind::kComponentOffloaded, mover_.bytes(), start);
  }

  void use_on(const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    check_process("use_on");
    mover_.use_on(stream);
  }

  void set_cache(std::shared_ptr<BoundedAllocatorCache> cache) {
    const std::lock_guard lock(mutex_);
    cache_.set(std::move(cache), storage_bytes());
  }

  void wait_copies() {
    const std::lock_guard lock(mutex_);
    check_process("wait_copies");
    mover_.wait_copies();
  }

  void write_back() {
    const CancellationDeferral deferral;
    const std::lock_guard lock(mutex_);
    check_process("write_back");
    check_not_capturing("write_back");
    mover_.write_back();
  }

  void update(const std::vector<NamedTensor>& values) {
    change("update", [&] { mover_.update(values); });
  }

  void add(const std::string& name, std::vector<NamedTensor> tensors) {
    change("add", [&] {
      if (name.empty()) throw InvalidArgument(text("add: the name must not be empty"));
      for (const auto& part : mover_.parts()) {
        if (part->name() == name)
          throw InvalidArgument(text("add: '" + name + "' was added before"));
        check_paths_are_new(part->layout(), tensors);
      }
      detail::StagingLayout layout = lay_out(std::move(tensors), nullptr);
      // First, since this can be refused and what is adopted stays adopted, whatever fails then.
      cache_.resize(storage_bytes() + layout.group_bytes);
      mover_.add(name, std::move(layout));
    });
  }

  void remove(const std::string& name) {
    change("remove", [&] { mover_.remove(name); });
  }

  [[nodiscard]] std::vector<std::string> corrupted_masters() {
    const std::lock_guard lock(mutex_);
    if (!options_.checksum_masters) {
      throw StateError(
          text("corrupted_masters: checksum_masters is off, so there is nothing to "
               "compare the masters with"));
    }
    return mover_.corrupted_paths();
  }

  [[nodiscard]] AuditReport audit() const {
    const std::lock_guard lock(mutex_);
    return audit_;
  }

  [[nodiscard]] bool is_loaded() const {
    const std::lock_guard lock(mutex_);
    return mover_.is_loaded();
  }
  [[nodiscard]] StagerCounters counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
  }
  [[nodiscard]] std::int64_t still_referenced_bytes() const {
    const std::lock_guard lock(mutex_);
    return mover_.still_referenced_bytes();
  }
  [[nodiscard]] const StagerOptions& options() const noexcept { return options_; }
  [[nodiscard]] c10::Device device() const noexcept { return context_->device(); }

  /// A sum over the parts of what the component is made of.
  template <class Figure>
  [[nodiscard]] auto sum(Figure figure) const {
    const std::lock_guard lock(mutex_);
    decltype(figure(*mover_.parts().front())) total = 0;
    for (const auto& part : mover_.parts()) total += figure(*part);
    return total;
  }

 private:
  [[nodiscard]] std::string text(const std::string& message) const {
    return "component '" + options_.name + "': " + message;
  }

  /// Checks and audits tensors, and changes nothing.
  detail::StagingLayout lay_out(std::vector<NamedTensor> tensors,
                                const std::function<void()>& trial_run) {
    check_not_capturing("staging");
    AuditReport audit;
    if (trial_run) audit = audit_trial_run(tensors, {}, trial_run);
    detail::StagingLayout layout = detail::make_staging_layout(
        std::move(tensors), options_.name, options_.alignment, options_.chunk_bytes_max,
        detail::adoption_probe(*context_, options_));
    audit.append(detail::audit_aliases(layout));
    if (options_.strict_audit && !audit.is_clean()) {
      throw StagingError(text("refused by its audit:\n" + audit.to_text()));
    }
    audit_.append(audit);
    for (const AuditFinding& finding : audit.findings()) {
      if (finding.kind == AuditKind::kTiedTensor || context_->sink() == nullptr) continue;
      context_->sink()->on_event({.kind = EventKind::kAuditFinding,
                                  .device = context_->device(),
                                  .component = options_.name,
                                  .reason = to_string(finding.kind),
                                  .message = finding.path + ": " + finding.message,
                                  .bytes = finding.bytes});
    }
    return layout;
  }

  void check_paths_are_new(const detail::StagingLayout& layout,
                           const std::vector<NamedTensor>& tensors) const {
    for (const detail::TensorRecord& record : layout.tensors) {
      for (const NamedTensor& named : tensors) {
        if (named.path == record.path) {
          throw InvalidArgument(text("add: a tensor '" + named.path + "' is managed already"));
        }
      }
    }
  }

  /// One change of the weights. If it had to offload the component, a forced release follows.
  template <class Change>
  void change(const char* operation, Change make) {
    const CancellationDeferral deferral;
    const std::lock_guard lock(mutex_);
    check_process(operation);
    check_not_capturing(operation);
    const bool was_loaded = mover_.is_loaded();
    try {
      make();
    } catch (...) {
      cache_.resize(storage_bytes());  // Smaller than it was made for `make`, so it cannot throw.
      if (was_loaded && !mover_.is_loaded()) release_forced();
      throw;
    }
    cache_.resize(storage_bytes());
  }

  /// Each storage once, without padding: what a cache counts.
  [[nodiscard]] std::int64_t storage_bytes() const noexcept {
    std::int64_t bytes = 0;
    for (const auto& part : mover_.parts()) bytes += part->layout().group_bytes;
    return bytes;
  }

  void check_not_capturing(const char* operation) const {
    if (!context_->is_capturing()) return;
    throw StateError(text(std::string(operation) +
                          ": a graph is being captured; it would keep addresses that the next "
                          "offload gives away"));
  }

  void check_process(const char* operation) const {
    if (context_->is_creating_process()) return;
    throw StateError("component '" + options_.name + "': " + operation +
                     ": this stager was created in another process; a device cannot be used "
                     "after a fork");
  }

  /// The second and last attempt, piece by piece as the storages are: holes that no chunk fits into
  /// may still hold single storages.
  void retry_load() {
    ++counters_.out_of_memory_retries;
    emit(EventKind::kOutOfMemoryRetry, mover_.bytes(), std::nullopt);
    release_forced();
    try {
      mover_.load(detail::Pieces::kStorages);
    } catch (...) {
      release_forced();
      throw;
    }
  }

  /// Follows an error, and must not replace it.
  void release_forced() noexcept {
    ++counters_.forced_releases;
    cache_.release_forced();
  }

  void emit(EventKind kind, std::int64_t bytes,
            std::optional<std::chrono::steady_clock::time_point> start) const noexcept {
    if (context_->sink() == nullptr) return;
    Event event{.kind = kind, .device = context_->device(), .component = options_.name};
    event.bytes = bytes;
    if (start) event.duration = std::chrono::steady_clock::now() - *start;
    context_->sink()->on_event(event);
  }

  const std::shared_ptr<DeviceContext> context_;
  const StagerOptions options_;

  // Held across device calls on purpose: a load or an offload is one step for all other threads,
  // and events of LibTorch are not thread-safe. It guards all below.
  mutable std::mutex mutex_;
  StagerCounters counters_;
  AuditReport audit_;  // Before mover_, whose construction fills it.
  detail::AttachedCache cache_{*context_, options_.name};
  detail::ComponentMover mover_;
};

PinnedModuleStager::PinnedModuleStager(std::vector<NamedTensor> tensors,
                                       std::shared_ptr<DeviceContext> context,
                                       StagerOptions options)
    : impl_(std::make_unique<Impl>(std::move(tensors), std::move(context), std::move(options))) {}

PinnedModuleStager::~PinnedModuleStager() = default;

void PinnedModuleStager::load() {
  impl_->load();
}
void PinnedModuleStager::offload() {
  impl_->offload();
}
void PinnedModuleStager::use_on(const c10::Stream& stream) {
  impl_->use_on(stream);
}
void PinnedModuleStager::set_cache(std::shared_ptr<BoundedAllocatorCache> cache) {
  impl_->set_cache(std::move(cache));
}
void PinnedModuleStager::wait_copies() {
  impl_->wait_copies();
}
void PinnedModuleStager::write_back() {
  impl_->write_back();
}
void PinnedModuleStager::update(const std::vector<NamedTensor>& values) {
  impl_->update(values);
}
void PinnedModuleStager::add(const std::string& name, std::vector<NamedTensor> tensors) {
  impl_->add(name, std::move(tensors));
}
void PinnedModuleStager::remove(const std::string& name) {
  impl_->remove(name);
}
std::vector<std::string> PinnedModuleStager::corrupted_masters() const {
  return impl_->corrupted_masters();
}
AuditReport PinnedModuleStager::audit() const {
  return impl_->audit();
}
bool PinnedModuleStager::is_loaded() const {
  return impl_->is_loaded();
}
const std::string& PinnedModuleStager::name() const noexcept {
  return impl_->options().name;
}
std::int64_t PinnedModuleStager::bytes() const noexcept {
  return impl_->sum([](const auto& part) { return part.bytes(); });
}
c10::Device PinnedModuleStager::device() const noexcept {
  return impl_->device();
}
std::int64_t PinnedModuleStager::pinned_bytes() const noexcept {
  return impl_->sum([](const auto& part) { return part.arena().pinned_bytes(); });
}
std::int64_t PinnedModuleStager::host_bytes() const noexcept {
  return impl_->sum([](const auto& part) { return part.arena().taken_bytes(); });
}
std::int64_t PinnedModuleStager::adopted_bytes() const noexcept {
  return impl_->sum([](const auto& part) { return part.arena().adopted_bytes(); });
}
std::size_t PinnedModuleStager::chunk_count() const noexcept {
  return impl_->sum([](const auto& part) { return part.layout().chunk_bytes.size(); });
}
std::size_t PinnedModuleStager::storage_count() const noexcept {
  return impl_->sum([](const auto& part) { return part.layout().groups.size(); });
}
std::size_t PinnedModuleStager::tensor_count() const noexcept {
  return impl_->sum([](const auto& part) { return part.layout().tensors.size(); });
}
std::int64_t PinnedModuleStager::still_referenced_bytes() const {
  return impl_->still_referenced_bytes();
}
StagerCounters PinnedModuleStager::counters() const {
  return impl_->counters();
}

OFFSTAGE_NAMESPACE_END
