// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What a pipeline declares about a component, and where the component then lives.

#include <offstage/base/config.hpp>

#include <cstdint>
#include <string>
#include <string_view>

OFFSTAGE_NAMESPACE_BEGIN

/// What a component is for.
enum class ComponentRole : std::uint8_t {
  kEncoder,
  kTransformer,  ///< A diffusion transformer. The component policy does not know it by name.
  kVae,
  kOther,
};

/// What the author of a pipeline declares about one component.
struct ComponentDescriptor {
  std::string path;
  ComponentRole role = ComponentRole::kOther;
  bool on_demand = true;    ///< May wait in host memory while it is not used.
  bool has_blocks = false;  ///< Has a list of blocks that can be streamed one by one.
};

/// Where a component lives.
enum class Residence : std::uint8_t {
  kResident,  ///< On the device from enabling to disabling; its guards pass through.
  kStaged,    ///< In host memory, and on the device while a scope is open.
};

/// What may be done with a component's blocks.
enum class BlockTreatment : std::uint8_t {
  kNone,        ///< It has none.
  kStreamable,  ///< They may be streamed.
  kUntouched,   ///< They are resident with the rest of the component.
};

/// Why a component was placed as it was.
enum class PlacementReason : std::uint8_t {
  kOffloadingOff,  ///< Nothing is offloaded.
  kNamed,          ///< The policy has an entry for the component.
  kDefaultEntry,   ///< The policy has no entry for it, but one named "default".
  kNoEntry,        ///< The policy has neither: permitted, as declared.
  kNotOnDemand,    ///< The policy permits staging, but the pipeline does not declare it.
  kNotGoverned,    ///< A transformer: as declared; the policy has no say.
};

[[nodiscard]] constexpr std::string_view to_string(Residence residence) noexcept {
  return residence == Residence::kStaged ? "staged" : "resident";
}

[[nodiscard]] constexpr std::string_view to_string(BlockTreatment blocks) noexcept {
  switch (blocks) {
    case BlockTreatment::kNone:
      return "none";
    case BlockTreatment::kStreamable:
      return "streamable";
    case BlockTreatment::kUntouched:
      return "untouched";
  }
  return "unknown";
}

[[nodiscard]] constexpr std::string_view to_string(PlacementReason reason) noexcept {
  switch (reason) {
    case PlacementReason::kOffloadingOff:
      return "offloading_off";
    case PlacementReason::kNamed:
      return "named";
    case PlacementReason::kDefaultEntry:
      return "default_entry";
    case PlacementReason::kNoEntry:
      return "no_entry";
    case PlacementReason::kNotOnDemand:
      return "not_on_demand";
    case PlacementReason::kNotGoverned:
      return "not_governed";
  }
  return "unknown";
}

/// Where one component lives, and why.
struct Placement {
  Residence residence = Residence::kStaged;
  BlockTreatment blocks = BlockTreatment::kNone;
  PlacementReason reason = PlacementReason::kNoEntry;

  friend constexpr bool operator==(const Placement&, const Placement&) = default;
};

OFFSTAGE_NAMESPACE_END
