// SPDX-License-Identifier: Apache-2.0
#include "script_inventory.hpp"
#include "script_preparation.hpp"
#include "tensor_checks.hpp"

#include <offstage/base/error.hpp>
#include <offstage/staging/script_module.hpp>

#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

using detail::ScriptInventory;
using detail::ScriptPreparation;
using detail::ScriptTensor;

constexpr std::size_t kNamedAtMost = 8;

void check_device(c10::Device device) {
  if (device.is_cpu() || device.has_index()) return;
  throw InvalidArgument("TorchScript: the device '" + device.str() + "' has no index");
}

/// "a; b; and 3 more"
template <class List, class ToText>
std::string enumerate(const List& list, ToText to_text) {
  std::string text;
  for (std::size_t i = 0; i < std::min(list.size(), kNamedAtMost); ++i) {
    text += (i == 0 ? "" : "; ") + to_text(list[i]);
  }
  if (list.size() > kNamedAtMost) {
    text += "; and " + std::to_string(list.size() - kNamedAtMost) + " more";
  }
  return text;
}

std::string text_of(const ScriptPreparation::Finding& finding) {
  return "'" + finding.path + "' " + finding.what;
}

void check_not_packed(const ScriptInventory& inventory) {
  if (inventory.packed.empty()) return;
  throw StagingError(
      "TorchScript module is packed (optimize_for_inference, or quantization): " +
      enumerate(inventory.packed,
                [](const detail::ScriptPacked& entry) {
                  return "'" + entry.path + "' holds " + entry.what;
                }) +
      ". Such weights cannot be re-bound; stage the module from before it was packed");
}

void check_devices(const ScriptPreparation& preparation, c10::Device device,
                   const ScriptOptions& options) {
  const auto& refused =
      options.rewrite_devices ? preparation.fixed_devices() : preparation.baked_devices();
  if (refused.empty()) return;
  const std::string remedy =
      options.rewrite_devices
          ? "Devices inside lists, dicts and tuples cannot be rewritten; trace the module there"
          : "Trace it on that device, or have the devices rewritten "
            "(ScriptOptions::rewrite_devices)";
  throw StagingError("TorchScript module is to run on " + device.str() + ", and its code names " +
                     "other devices: " + enumerate(refused, &text_of) + ". " + remedy);
}

void check_not_run(const ScriptPreparation& preparation) {
  const std::vector<std::string> ran = preparation.methods_that_ran();
  if (ran.empty()) return;
  const std::string reasons = preparation.derived_constants().empty()
                                  ? "its devices would have to be rewritten"
                                  : "constants would have to be derived beforehand: " +
                                        enumerate(preparation.derived_constants(), &text_of);
  throw StagingError("TorchScript module has run already: " +
                     enumerate(ran, [](const std::string& path) { return "'" + path + "'"; }) +
                     "; " + reasons +
                     ". The executor keeps what it saw in the first run; load the module anew and "
                     "stage it before");
}

void add_unstageable(const ScriptInventory& inventory, AuditReport& report) {
  for (const ScriptTensor& entry : inventory.tensors) {
    try {
      detail::check_stageable(entry.tensor, entry.path, "module");
    } catch (const StagingError& error) {
      report.add({AuditKind::kUnmanagedTensor, entry.path, error.what(),
                  entry.tensor.numel() * static_cast<std::int64_t>(entry.tensor.itemsize())});
    }
  }
}

/// Several names for one tensor or one storage; and storages that others hold as well.
void add_shared(const ScriptInventory& inventory, AuditReport& report) {
  struct Storage {
    const ScriptTensor* first = nullptr;
    std::unordered_map<const c10::TensorImpl*, const ScriptTensor*> tensors;
  };
  std::unordered_map<const c10::StorageImpl*, Storage> storages;
  for (const ScriptTensor& entry : inventory.tensors) {
    if (entry.is_host_number || !entry.tensor.has_storage() || entry.tensor.numel() == 0) continue;
    Storage& storage = storages[entry.tensor.storage().unsafeGetStorageImpl()];
    const auto [found, is_new] =
        storage.tensors.emplace(entry.tensor.unsafeGetTensorImpl(), &entry);
    const auto bytes = static_cast<std::int64_t>(entry.tensor.nbytes());
    if (!is_new) {
      report.add({AuditKind::kTiedTensor, entry.path,
                  "is the same tensor as '" + found->second->path + "'; it is moved once", bytes});
    } else if (storage.first != nullptr) {
      report.add({AuditKind::kTiedTensor, entry.path,
                  "shares its memory with '" + storage.first->path + "'; it is moved once", bytes});
    } else {
      storage.first = &entry;
    }
  }
  for (const ScriptTensor& entry : inventory.tensors) {
    if (entry.is_host_number || !entry.tensor.has_storage() || entry.tensor.numel() == 0) continue;
    const c10::Storage& storage = entry.tensor.storage();
    const Storage& known = storages.at(storage.unsafeGetStorageImpl());
    if (known.first != &entry || storage.use_count() <= known.tensors.size()) continue;
    report.add({AuditKind::kUnmanagedAlias, entry.path,
                std::to_string(storage.use_count() - known.tensors.size()) +
                    " tensors outside the module share its memory and would keep the old one",
                static_cast<std::int64_t>(entry.tensor.nbytes())});
  }
}

void add_constants(const ScriptInventory& inventory, AuditReport& report) {
  for (const ScriptTensor& entry : inventory.tensors) {
    if (entry.kind != detail::ScriptTensorKind::kConstant || entry.is_host_number) continue;
    report.add({AuditKind::kHiddenConstant, entry.path,
                "is a tensor in the graph that parameters() and buffers() do not list",
                static_cast<std::int64_t>(entry.tensor.nbytes())});
  }
}

void add_packed(const ScriptInventory& inventory, AuditReport& report) {
  for (const detail::ScriptPacked& entry : inventory.packed) {
    report.add({AuditKind::kPackedWeights, entry.path,
                "holds " + entry.what + "; stage the module from before it was packed",
                entry.bytes});
  }
}

}  // namespace

std::vector<NamedTensor> script_tensors(torch::jit::Module& module, c10::Device device,
                                        ScriptOptions options) {
  check_device(device);
  {
    ScriptInventory inventory = detail::take_inventory(module);
    check_not_packed(inventory);
    ScriptPreparation preparation(std::move(inventory), device);
    check_devices(preparation, device, options);
    check_not_run(preparation);
    preparation.commit();
  }
  std::vector<NamedTensor> tensors;
  for (ScriptTensor& entry : detail::take_inventory(module).tensors) {
    if (entry.is_host_number) continue;
    const bool is_buffer = entry.kind == detail::ScriptTensorKind::kBuffer ||
                           entry.kind == detail::ScriptTensorKind::kAttribute;
    tensors.push_back({std::move(entry.path), std::move(entry.tensor), is_buffer});
  }
  return tensors;
}

AuditReport audit_script(const torch::jit::Module& module, c10::Device device) {
  check_device(device);
  AuditReport report;
  ScriptInventory inventory = detail::take_inventory(module);
  add_packed(inventory, report);
  add_unstageable(inventory, report);
  add_shared(inventory, report);
  add_constants(inventory, report);
  if (!inventory.packed.empty()) return report;  // Packed operations are not to be evaluated.
  const ScriptPreparation preparation(std::move(inventory), device);
  for (const ScriptPreparation::Finding& finding : preparation.baked_devices()) {
    report.add({AuditKind::kBakedDevice, finding.path,
                finding.what + ", not " + device.str() +
                    "; trace the module there, or have devices rewritten",
                0});
  }
  for (const ScriptPreparation::Finding& finding : preparation.derived_constants()) {
    report.add({AuditKind::kDerivedConstant, finding.path,
                finding.what + " and kept by the executor; script_tensors() makes it a constant",
                finding.bytes});
  }
  return report;
}

OFFSTAGE_NAMESPACE_END
