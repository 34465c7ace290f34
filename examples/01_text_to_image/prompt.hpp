// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// From a phrase to token ids: the word tokenizer of the example.

#include "scene.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace text_to_image {

/// Tokens of a prompt, always in this order: size, colour, shape, background colour, position.
inline constexpr std::int64_t kPromptTokens = 5;
using TokenIds = std::array<std::int64_t, kPromptTokens>;

/// The words the text encoder has a vector for; a word's id is its place in the list. A colour is
/// one word, wherever it stands: the place tells the shape's from the background's.
[[nodiscard]] const std::vector<std::string_view>& vocabulary();

/// Reads a phrase such as "a small red circle on a blue background at the top left".
///
/// Case and punctuation do not matter, filler words (a, the, on, ...) are skipped. The first colour
/// is the shape's, the second the background's, in the order of the phrase; "background" after one
/// colour makes that the background's. What may be missing, and what is then meant: size: large;
/// position: center; background: white, or black behind a white shape; colour: red, or blue on a
/// red background. The shape must be named.
///
/// @throws std::invalid_argument in one line: an unknown word (named, with the known ones), no
///         shape, two of a kind, or a shape in the colour of its background.
[[nodiscard]] Scene parse_prompt(std::string_view phrase);

/// The five ids of a scene.
[[nodiscard]] TokenIds tokenize(const Scene& scene);

}  // namespace text_to_image
