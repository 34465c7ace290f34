// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What has to be done to a TorchScript module before it can be staged: found on copies, then done.

#include "script_folding.hpp"
#include "script_inventory.hpp"

#include <offstage/base/config.hpp>

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

class ScriptPreparation {
 public:
  /// Works on copies of the graphs; the module is not changed.
  ScriptPreparation(ScriptInventory inventory, c10::Device device);

  struct Finding {
    std::string path;  ///< "forward: %12 (aten::arange input 3) at model.py:7"
    std::string what;
    std::int64_t bytes = 0;
  };

  [[nodiscard]] const ScriptInventory& inventory() const noexcept { return inventory_; }
  [[nodiscard]] const std::vector<Finding>& baked_devices() const noexcept { return devices_; }
  /// Those baked devices that cannot be set: they are inside a list, dict or tuple.
  [[nodiscard]] const std::vector<Finding>& fixed_devices() const noexcept { return fixed_; }
  [[nodiscard]] const std::vector<Finding>& derived_constants() const noexcept { return derived_; }
  /// Methods with an executor whose graph would change, or that of a function that they call.
  [[nodiscard]] std::vector<std::string> methods_that_ran() const;

  /// Changes the graphs and sets the devices. Call it only if all that was found is acceptable.
  void commit();

 private:
  struct Candidate {
    std::shared_ptr<torch::jit::Graph> graph;
    bool is_changed = false;
  };

  void prepare(const ScriptFunction& function);
  void prepare_across_calls(const ScriptFunction& function, Candidate& candidate);
  void note_devices(const std::string& path, const std::vector<BakedDevice>& baked);
  void note_derived(const std::string& path, const std::vector<DerivedConstant>& derived);
  [[nodiscard]] Candidate& candidate(torch::jit::GraphFunction& function);

  const c10::Device device_;
  c10::Device home_ = c10::Device(c10::kCPU);
  ScriptInventory inventory_;
  std::unordered_map<const torch::jit::GraphFunction*, Candidate> candidates_;
  std::vector<Finding> devices_;
  std::vector<Finding> fixed_;
  std::vector<Finding> derived_;
};

}  // namespace detail
OFFSTAGE_NAMESPACE_END
