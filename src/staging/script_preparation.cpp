// SPDX-License-Identifier: Apache-2.0
#include "script_preparation.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

namespace {

using torch::jit::Graph;
using torch::jit::GraphFunction;

/// Where the constants are: the CPU, unless one is somewhere else.
c10::Device home_of(const ScriptInventory& inventory) {
  for (const ScriptTensor& entry : inventory.tensors) {
    if (entry.kind == ScriptTensorKind::kConstant && !entry.tensor.is_cpu()) {
      return entry.tensor.device();
    }
  }
  return c10::Device(c10::kCPU);
}

}  // namespace

ScriptPreparation::ScriptPreparation(ScriptInventory inventory, c10::Device device)
    : device_(device), home_(home_of(inventory)), inventory_(std::move(inventory)) {
  for (const ScriptDevice& entry : inventory_.devices) {
    if (is_same_device(entry.device, device_)) continue;
    const Finding finding{entry.path, "names the device " + entry.device.str(), 0};
    devices_.push_back(finding);
    if (entry.owner == nullptr) fixed_.push_back(finding);
  }
  for (const ScriptFunction& function : inventory_.functions) prepare(function);
}

void ScriptPreparation::prepare(const ScriptFunction& function) {
  std::shared_ptr<Graph> graph = function.function->graph()->copy();
  fold_plain_values(graph);
  const std::vector<BakedDevice> baked = detail::baked_devices(*graph, device_);
  note_devices(function.path, baked);
  const std::vector<DerivedConstant> derived = fold_derived(graph, home_, device_);
  note_derived(function.path, derived);

  Candidate candidate;
  candidate.is_changed = !baked.empty() || !derived.empty();
  candidate.graph = candidate.is_changed ? std::move(graph) : function.function->graph()->copy();
  prepare_across_calls(function, candidate);
  candidates_.emplace(function.function, std::move(candidate));
}

void ScriptPreparation::prepare_across_calls(const ScriptFunction& function, Candidate& candidate) {
  std::shared_ptr<Graph> graph = candidate.graph->copy();
  const bool has_calls = inline_calls(
      *graph, [this](GraphFunction& callee) -> Graph& { return *this->candidate(callee).graph; });
  if (!has_calls) return;
  fold_plain_values(graph);
  const std::vector<BakedDevice> baked = detail::baked_devices(*graph, device_);
  note_devices(function.path, baked);
  const std::vector<DerivedConstant> derived = fold_derived(graph, home_, device_);
  note_derived(function.path, derived);
  if (baked.empty() && derived.empty()) return;  // The calls can stay calls.
  candidate.is_changed = true;
  candidate.graph = std::move(graph);
}

ScriptPreparation::Candidate& ScriptPreparation::candidate(GraphFunction& function) {
  return candidates_.at(&function);
}

void ScriptPreparation::note_devices(const std::string& path,
                                     const std::vector<BakedDevice>& baked) {
  for (const BakedDevice& entry : baked) {
    devices_.push_back({path + ": " + entry.where, "names the device " + entry.device.str(), 0});
  }
}

void ScriptPreparation::note_derived(const std::string& path,
                                     const std::vector<DerivedConstant>& derived) {
  for (const DerivedConstant& entry : derived) {
    derived_.push_back(
        {path + ": " + entry.where, "is computed from constants at the first run", entry.bytes});
  }
}

std::vector<std::string> ScriptPreparation::methods_that_ran() const {
  std::vector<std::string> ran;
  std::unordered_set<const GraphFunction*> affected;  // Callees come first in the list.
  for (const ScriptFunction& entry : inventory_.functions) {
    const bool calls_affected =
        std::any_of(entry.callees.begin(), entry.callees.end(),
                    [&](const GraphFunction* callee) { return affected.count(callee) != 0; });
    if (!calls_affected && !candidates_.at(entry.function).is_changed) continue;
    affected.insert(entry.function);
    if (has_executor(*entry.function)) ran.push_back(entry.path);
  }
  return ran;
}

void ScriptPreparation::commit() {
  for (const ScriptFunction& entry : inventory_.functions) {
    const Candidate& candidate = candidates_.at(entry.function);
    if (candidate.is_changed) assign(*entry.function->graph(), *candidate.graph);
  }
  // Inlined copies of what was changed, which callers would get.
  for (const ScriptFunction& entry : inventory_.functions) {
    entry.function->clear_optimized_graphs();
  }
  for (const ScriptDevice& entry : inventory_.devices) {
    if (entry.owner != nullptr && !is_same_device(entry.device, device_)) {
      entry.owner->setSlot(entry.slot, device_);
    }
  }
}

}  // namespace detail
OFFSTAGE_NAMESPACE_END
