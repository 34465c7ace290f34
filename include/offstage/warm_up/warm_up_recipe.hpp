// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// How a pipeline wants to be warmed up before its first request.

#include <offstage/base/config.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

OFFSTAGE_NAMESPACE_BEGIN

/// What an extra argument of a request may be.
using ExtraArgument = std::variant<bool, std::int64_t, double, std::string>;
using ExtraArguments = std::map<std::string, ExtraArgument>;

/// The largest generation that a pipeline will be asked for, so that whatever learns from what it
/// sees (`LearnedRetention`) has seen its peak before the first request. A plain value: it is
/// declared once, handed out as a copy, and used whether or not anything is offloaded.
///
/// A recipe without anything in it means that there is no warm-up.
///
/// As JSON it is one object. The five names below are sampling parameters; every other key is an
/// extra argument, a boolean, a number or a string:
/// `{"height": 1024, "width": 1024, "num_inference_steps": 2, "guidance_scale": 1.0, "task":
/// "t2v"}`
struct WarmUpRecipe {
  std::optional<std::int64_t> height = {};               ///< In pixels; absent: the caller's.
  std::optional<std::int64_t> width = {};                ///< In pixels; absent: the caller's.
  std::optional<std::int64_t> num_inference_steps = {};  ///< Absent: 1.
  std::optional<std::int64_t> num_frames = {};           ///< Absent: 0, which is no video.
  std::optional<double> guidance_scale = {};             ///< Absent: the caller's.
  ExtraArguments extra_arguments = {};

  [[nodiscard]] bool is_empty() const noexcept;

  /// @throws InvalidArgument naming the key, what was expected and what was found: sizes and steps
  ///         below 1, negative frames, a guidance or an extra number that is not finite, an extra
  ///         argument without a name or with the name of a sampling parameter.
  void check() const;

  /// Reads and checks a recipe. `null` and `{}` are the empty one.
  /// @throws InvalidArgument naming the key: wrong types (1.5 is no whole number), a key twice,
  ///         values as `check()` says; or the place where the text is no JSON.
  [[nodiscard]] static WarmUpRecipe parse(std::string_view json);

  /// `parse()` of it gives an equal recipe.
  /// @throws InvalidArgument as `check()`, and for text that is not UTF-8.
  [[nodiscard]] std::string to_json() const;

  friend bool operator==(const WarmUpRecipe&, const WarmUpRecipe&) = default;
};

OFFSTAGE_NAMESPACE_END
