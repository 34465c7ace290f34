// SPDX-License-Identifier: Apache-2.0
#include "edit_distance.hpp"
#include "json_pointer.hpp"

#include <offstage/base/error.hpp>
#include <offstage/components/component_policy.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

constexpr std::string_view kDefaultKey = "default";

std::string quoted(std::string_view name) {
  return "'" + std::string(name) + "'";
}

template <typename Names>
std::string listed(const Names& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + quoted(name);
  return text;
}

void require_distinct_paths(std::span<const ComponentDescriptor> components) {
  std::set<std::string_view> seen;
  for (const ComponentDescriptor& component : components) {
    if (component.path.empty()) {
      throw InvalidArgument("component descriptor: path must not be empty");
    }
    if (component.path == kDefaultKey) {
      throw InvalidArgument("component descriptor: path must not be 'default', a policy's key");
    }
    if (!seen.insert(component.path).second) {
      throw InvalidArgument("component descriptor: path must be distinct, got " +
                            quoted(component.path) + " twice");
    }
  }
}

// The known name that `unknown` is most likely a slip of; empty if none is near.
std::string_view nearest(std::string_view unknown, const std::set<std::string_view>& known) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(2, unknown.size() / 3) + 1;
  for (const std::string_view name : known) {
    const std::size_t distance = edit_distance(unknown, name);
    if (distance < best_distance && distance < name.size()) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace

ComponentPolicy ComponentPolicy::from_map(const std::map<std::string, bool>& entries) {
  ComponentPolicy policy;
  for (const auto& [key, value] : entries) {
    if (key.empty()) throw PolicyError("/", "a component path or 'default'", "an empty key");
    if (key == kDefaultKey) {
      policy.default_ = value;
    } else {
      policy.entries_.emplace(key, value);
    }
  }
  return policy;
}

bool ComponentPolicy::lookup(std::string_view path) const {
  const auto found = entries_.find(path);
  return found != entries_.end() ? found->second : default_.value_or(true);
}

std::vector<ResolvedComponent> ComponentPolicy::resolve(
    std::span<const ComponentDescriptor> components, bool offloading_enabled) const {
  require_distinct_paths(components);
  if (!offloading_enabled && !empty()) {
    throw PolicyError(
        "", "an empty policy, since offloading is off",
        std::to_string(entries_.size() + (default_.has_value() ? 1 : 0)) + " entries");
  }
  require_known_names(components);
  std::vector<ResolvedComponent> resolved;
  resolved.reserve(components.size());
  for (const ComponentDescriptor& component : components) {
    Placement placement = place(component);
    if (!offloading_enabled) {
      placement = {
          .residence = Residence::kResident,
          .blocks = component.has_blocks ? BlockTreatment::kUntouched : BlockTreatment::kNone,
          .reason = PlacementReason::kOffloadingOff};
    }
    resolved.push_back({.path = component.path, .placement = placement});
  }
  return resolved;
}

void ComponentPolicy::require_known_names(std::span<const ComponentDescriptor> components) const {
  std::set<std::string_view> known;
  std::set<std::string_view> transformers;
  for (const ComponentDescriptor& component : components) {
    (component.role == ComponentRole::kTransformer ? transformers : known).insert(component.path);
  }
  std::string first;
  std::string unknown;
  for (const auto& [name, value] : entries_) {
    if (known.count(name) != 0) continue;
    if (first.empty()) first = name;
    unknown += (unknown.empty() ? "" : ", ") + quoted(name);
    if (transformers.count(name) != 0) {
      unknown += " (a transformer: not governed by this policy)";
    } else if (const std::string_view near = nearest(name, known); !near.empty()) {
      unknown += " (did you mean " + quoted(near) + "?)";
    }
  }
  if (first.empty()) return;
  throw PolicyError(json_pointer(first),
                    known.empty() ? "no names, since the pipeline has no such components"
                                  : "only known names (" + listed(known) + ")",
                    "unknown " + unknown);
}

Placement ComponentPolicy::place(const ComponentDescriptor& component) const {
  const bool governed = component.role != ComponentRole::kTransformer;
  const bool permitted = !governed || lookup(component.path);
  Placement placement;
  if (!governed) {
    placement.reason = PlacementReason::kNotGoverned;
  } else if (entries_.count(component.path) != 0) {
    placement.reason = PlacementReason::kNamed;
  } else if (default_.has_value()) {
    placement.reason = PlacementReason::kDefaultEntry;
  }
  if (permitted && !component.on_demand) placement.reason = PlacementReason::kNotOnDemand;
  placement.residence =
      permitted && component.on_demand ? Residence::kStaged : Residence::kResident;
  if (component.has_blocks) {
    placement.blocks = permitted ? BlockTreatment::kStreamable : BlockTreatment::kUntouched;
  }
  return placement;
}

OFFSTAGE_NAMESPACE_END
