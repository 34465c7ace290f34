// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Which components may be offloaded: the user's word on what the pipeline declares.

#include <offstage/base/config.hpp>
#include <offstage/components/placement.hpp>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN

/// The placement of one component.
struct ResolvedComponent {
  std::string path;
  Placement placement;
};

/// A map from component path to "may be offloaded", with an optional default.
///
/// `false` keeps the whole component on the device, its blocks included. `true` only permits what
/// the pipeline declares for it. Transformers have no entry: their streaming has an owner of its
/// own, and neither an entry nor the default reaches them.
///
/// A value; copies are independent.
class ComponentPolicy {
 public:
  /// Permits whatever is declared.
  ComponentPolicy() = default;

  /// Reads a JSON object such as `{"default": false, "video_vae": true}`. `null` is the empty
  /// policy. Strict: anything else than an object of booleans, an empty or repeated key, and
  /// text after the object are errors.
  /// @throws PolicyError with a JSON pointer to the place, what was expected and what was found.
  [[nodiscard]] static ComponentPolicy parse(std::string_view json);

  /// The same entries as the JSON object has, "default" included.
  /// @throws PolicyError for an empty key.
  [[nodiscard]] static ComponentPolicy from_map(const std::map<std::string, bool>& entries);

  /// True if `path` may be offloaded: its entry, else the default, else true.
  [[nodiscard]] bool lookup(std::string_view path) const;

  /// True if there is no entry and no default.
  [[nodiscard]] bool empty() const noexcept { return entries_.empty() && !default_.has_value(); }

  /// The entries without the default.
  [[nodiscard]] const std::map<std::string, bool, std::less<>>& entries() const noexcept {
    return entries_;
  }
  [[nodiscard]] std::optional<bool> default_value() const noexcept { return default_; }

  /// Places every component, in the order given. Pure: it moves nothing, so that all errors come
  /// before anything is moved.
  /// @param components          What the pipeline has; paths are distinct, not empty and not
  ///                            "default".
  /// @param offloading_enabled  False: everything is resident, and only an empty policy is right.
  /// @throws PolicyError if the policy is not empty while offloading is off, or names what is not
  ///         there (transformers included); it lists the unknown names, the known ones and the
  ///         nearest of these to a misspelt one.
  /// @throws InvalidArgument if a descriptor is wrong.
  [[nodiscard]] std::vector<ResolvedComponent> resolve(
      std::span<const ComponentDescriptor> components, bool offloading_enabled) const;

 private:
  void require_known_names(std::span<const ComponentDescriptor> components) const;
  [[nodiscard]] Placement place(const ComponentDescriptor& component) const;

  std::map<std::string, bool, std::less<>> entries_;
  std::optional<bool> default_;
};

OFFSTAGE_NAMESPACE_END
