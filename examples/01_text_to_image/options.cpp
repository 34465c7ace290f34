// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <stdexcept>

namespace text_to_image {

std::int64_t parse_bytes(std::string_view text) {
  const auto refuse = [&]() -> std::int64_t {
    throw std::invalid_argument("'" + std::string(text) +
                                "' is not a number of bytes such as 28311552 or 27MiB");
  };
  std::size_t used = 0;
  double number = 0;
  try {
    number = std::stod(std::string(text), &used);
  } catch (const std::exception&) {
    refuse();
  }
  std::string_view unit = text.substr(used);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit == "KiB") {
    number = std::ldexp(number, 10);
  } else if (unit == "MiB") {
    number = std::ldexp(number, 20);
  } else if (unit == "GiB") {
    number = std::ldexp(number, 30);
  } else if (!unit.empty()) {
    refuse();
  }
  // Up to 2^53 every number of bytes is exact, for the program and for the library.
  if (!(number >= 1 && number <= std::ldexp(1.0, 53))) refuse();
  return static_cast<std::int64_t>(number);
}

namespace {

/// What CLI11 calls a check: empty, or what is wrong.
std::string not_empty(const std::string& text) {
  return text.empty() ? "must not be empty" : "";
}

/// CLI11 itself takes "-1" for the largest number.
std::string whole_number(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? "" : "'" + text + "' is not a whole number from 0 to 18446744073709551615";
}

std::string finite(const std::string& text) {
  return text.find_first_of("nN") == std::string::npos ? "" : "'" + text + "' is not a number";
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  CLI::App app(
      "Draws pictures from phrases such as \"a small red circle on a blue background at the top "
      "left\", with the components of the pipeline staged between host memory and the device");
  options.weights = TEXT_TO_IMAGE_WEIGHTS;
  app.add_option("--prompt", options.prompts, "A phrase; repeat it for several pictures in a grid");
  app.add_option("--steps", options.steps, "Steps of the sampler")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--guidance", options.guidance, "How strictly to follow the prompt")
      ->check(finite)
      ->check(CLI::Range(0.0, 20.0))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the noise")
      ->check(whole_number)
      ->capture_default_str();
  app.add_option("--device", options.device, "auto: CUDA where there is one, else the simulation")
      ->check(CLI::IsMember({"auto", "cuda", "sim", "cpu"}))
      ->capture_default_str();
  app.add_option("--capacity", options.capacity,
                 "Memory of the simulated accelerator, such as 27MiB; default: the least that the "
                 "staged pipeline works in");
  app.add_option(
      "--dlo-offload-components", options.policy,
      "JSON object, component to true (may be offloaded) or false (stays on the device), "
      "with an optional \"default\"; components: text_encoder, vae_decoder");
  app.add_option(
         "--retention", options.retention,
         "Keeps the allocator's cache after an offload: within fixed or learned bounds, never, "
         "always")
      ->check(CLI::IsMember({"fixed", "learned", "never", "always"}))
      ->capture_default_str();
  app.add_option("--weights", options.weights, "Folder of the weights");
  app.add_option("--output", options.output, "The PNG to write")->capture_default_str();
  app.add_option("--threads", options.threads, "Threads of the CPU's kernels; 0: all cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("--json", options.json, "Report as JSON");
  auto* const evaluate = app.add_flag(
      "--evaluate", options.evaluate,
      "Draw 96 combinations held out of training and 96 seen ones, and count right pictures");
  app.add_option("--break", options.sabotage,
                 "drop-wait=N or drop-record=N: the simulated accelerator ignores the N-th wait or "
                 "record of the staged run, and reports the race that this makes");
  app.add_flag("--verify-staging", options.verify,
               "Make the masters in host memory unreadable while the components run");
  for (const char* text :
       {"--prompt", "--capacity", "--dlo-offload-components", "--weights", "--output", "--break"}) {
    app.get_option(text)->check(not_empty);
  }
  for (const char* other : {"--prompt", "--capacity", "--dlo-offload-components", "--retention",
                            "--output", "--break", "--verify-staging"}) {
    evaluate->excludes(app.get_option(other));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "text_to_image: %s\n", error.what());
    return 1;
  }
  return std::nullopt;
}

}  // namespace text_to_image
