// SPDX-License-Identifier: Apache-2.0
#include "prompt.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <stdexcept>

namespace text_to_image {

namespace {

constexpr std::array<std::string_view, 10> kFillers = {"a",  "an", "the", "on",   "in",
                                                       "at", "of", "and", "with", "corner"};

int colour_index(std::string_view word) {
  for (std::size_t i = 0; i < kColours.size(); ++i) {
    if (kColours[i].name == word) return static_cast<int>(i);
  }
  return -1;
}

template <class List>
int index_in(const List& list, std::string_view word) {
  const auto found = std::find(list.begin(), list.end(), word);
  return found == list.end() ? -1 : static_cast<int>(found - list.begin());
}

/// Lower-case words; everything but letters separates.
std::vector<std::string> split(std::string_view phrase) {
  std::vector<std::string> words(1);
  for (const char character : phrase) {
    const auto byte = static_cast<unsigned char>(character);
    if (std::isspace(byte) != 0 || (std::ispunct(byte) != 0 && byte != '\'')) {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += static_cast<char>(std::tolower(byte));
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

std::string known_words() {
  std::string text;
  const auto add = [&](std::string_view word) {
    if (!text.empty()) text += ' ';
    text += word;
  };
  for (const auto word : kSizes) add(word);
  for (const auto& colour : kColours) add(colour.name);
  for (const auto word : kShapes) add(word);
  for (const std::string_view word : {"center", "top", "bottom", "left", "right", "background"}) {
    add(word);
  }
  for (const auto word : kFillers) add(word);
  return text;
}

[[noreturn]] void refuse(std::string_view phrase, const std::string& reason) {
  throw std::invalid_argument("prompt \"" + std::string(phrase) + "\": " + reason);
}

void set_once(std::optional<int>& slot, int value, std::string_view what, std::string_view phrase) {
  if (slot) refuse(phrase, "names two " + std::string(what) + "s");
  slot = value;
}

/// What a phrase said, slot by slot.
struct Said {
  std::optional<int> size;
  std::optional<int> shape;
  std::optional<int> colour;
  std::optional<int> background;
  std::string vertical;
  std::string horizontal;
  bool center = false;
};

void read_word(const std::string& word, std::vector<int>& colours, Said& said,
               std::string_view phrase) {
  if (const int shape = index_in(kShapes, word); shape >= 0) {
    set_once(said.shape, shape, "shape", phrase);
  } else if (const int size = index_in(kSizes, word); size >= 0) {
    set_once(said.size, size, "size", phrase);
  } else if (const int colour = colour_index(word); colour >= 0) {
    colours.push_back(colour);
  } else if (word == "background") {
    if (colours.empty()) refuse(phrase, "names no colour before 'background'");
    set_once(said.background, colours.back(), "background", phrase);
    colours.pop_back();
  } else if (word == "center") {
    said.center = true;
  } else if (word == "top" || word == "bottom") {
    if (!said.vertical.empty()) refuse(phrase, "names two positions");
    said.vertical = word;
  } else if (word == "left" || word == "right") {
    if (!said.horizontal.empty()) refuse(phrase, "names two positions");
    said.horizontal = word;
  } else if (index_in(kFillers, word) < 0) {
    refuse(phrase, "unknown word '" + word + "'; known words: " + known_words());
  }
}

int position_of(const Said& said, std::string_view phrase) {
  const bool corner = !said.vertical.empty() || !said.horizontal.empty();
  if (!corner) return index_in(kPositions, "center");
  if (said.center) refuse(phrase, "names two positions");
  const int position = index_in(kPositions, said.vertical + " " + said.horizontal);
  if (position < 0) {
    refuse(
        phrase,
        "half a position; known positions: center, top left, top right, bottom left, bottom right");
  }
  return position;
}

}  // namespace

const std::vector<std::string_view>& vocabulary() {
  static const std::vector<std::string_view> words = [] {
    std::vector<std::string_view> list(kSizes.begin(), kSizes.end());
    for (const auto& colour : kColours) list.push_back(colour.name);
    list.insert(list.end(), kShapes.begin(), kShapes.end());
    list.insert(list.end(), kPositions.begin(), kPositions.end());
    return list;
  }();
  return words;
}

Scene parse_prompt(std::string_view phrase) {
  Said said;
  std::vector<int> colours;
  for (const std::string& word : split(phrase)) read_word(word, colours, said, phrase);
  if (!said.shape)
    refuse(phrase, "names no shape; known shapes: circle square triangle diamond star cross");
  if (!colours.empty()) {
    said.colour = colours.front();
    colours.erase(colours.begin());
  }
  for (const int colour : colours) set_once(said.background, colour, "background", phrase);

  const int red = colour_index("red");
  Scene scene;
  scene.shape = *said.shape;
  scene.size = said.size.value_or(index_in(kSizes, "large"));
  scene.position = position_of(said, phrase);
  scene.colour = said.colour.value_or(said.background == red ? colour_index("blue") : red);
  scene.background = said.background.value_or(
      colour_index(scene.colour == colour_index("white") ? "black" : "white"));
  if (scene.colour == scene.background) refuse(phrase, "shape and background have one colour");
  return scene;
}

TokenIds tokenize(const Scene& scene) {
  const auto id = [](std::string_view word) -> std::int64_t {
    return index_in(vocabulary(), word);
  };
  return {id(kSizes[static_cast<std::size_t>(scene.size)]),
          id(kColours[static_cast<std::size_t>(scene.colour)].name),
          id(kShapes[static_cast<std::size_t>(scene.shape)]),
          id(kColours[static_cast<std::size_t>(scene.background)].name),
          id(kPositions[static_cast<std::size_t>(scene.position)])};
}

}  // namespace text_to_image
