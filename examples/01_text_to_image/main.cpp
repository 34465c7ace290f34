// SPDX-License-Identifier: Apache-2.0
//
// Draws pictures from phrases. The pipeline itself, and offstage around it, is in pipeline.cpp;
// what is shown of it in demonstration.cpp.

#include "demonstration.hpp"
#include "evaluation.hpp"
#include "options.hpp"
#include "png_file.hpp"
#include "prompt.hpp"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <cstdio>
#include <stdexcept>

namespace {

using namespace text_to_image;  // NOLINT: one program

Sabotage parse_sabotage(const std::string& text) {
  const auto equals = text.find('=');
  const std::string what = text.substr(0, equals);
  const std::string number = equals == std::string::npos ? "" : text.substr(equals + 1);
  const bool is_number = !number.empty() && number.size() < 10 &&
                         number.find_first_not_of("0123456789") == std::string::npos;
  if ((what != "drop-wait" && what != "drop-record") || !is_number || std::stoll(number) < 1) {
    throw std::invalid_argument("--break: '" + text +
                                "' is neither drop-wait=N nor drop-record=N with N from 1 on");
  }
  return {what == "drop-wait" ? offstage::testing::FaultPoint::kWait
                              : offstage::testing::FaultPoint::kRecord,
          std::stoll(number)};
}

Settings settings_of(const Options& options) {
  Settings settings;
  for (const std::string& prompt : options.prompts) {
    settings.request.scenes.push_back(parse_prompt(prompt));
  }
  settings.request.steps = options.steps;
  settings.request.guidance = options.guidance;
  settings.request.seed = options.seed;
  settings.weights = options.weights;
  if (!options.capacity.empty()) {
    try {
      settings.capacity = parse_bytes(options.capacity);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(std::string("--capacity: ") + error.what());
    }
  }
  if (!options.sabotage.empty()) settings.sabotage = parse_sabotage(options.sabotage);
  if (!options.policy.empty()) settings.policy = offstage::ComponentPolicy::parse(options.policy);
  // Unknown names are found here already, before anything is loaded.
  static_cast<void>(settings.policy.resolve(Pipeline::descriptors(), /*offloading_enabled=*/true));
  settings.retention = options.retention;
  settings.verify = options.verify;
  return settings;
}

std::vector<std::string> default_prompts() {
  return {"a red circle on a blue background",
          "a large yellow star on a purple background",
          "a small green square on a white background at the top left",
          "a black cross on an orange background",
          "a small white diamond on a green background at the bottom right",
          "an orange triangle on a black background",
          "a small purple circle on a yellow background at the top right",
          "a blue diamond on a red background",
          "a small red square on a black background at the bottom left"};
}

int evaluate_on_cpu(const Options& options) {
  Request request;
  request.steps = options.steps;
  request.guidance = options.guidance;
  request.seed = options.seed;
  if (options.device != "auto" && options.device != "cpu") {
    throw std::runtime_error("--evaluate: runs on the CPU, not on '" + options.device + "'");
  }
  Pipeline pipeline(options.weights, {});
  const Evaluation evaluation = evaluate(pipeline, request, [](int drawn, int total) {
    std::fprintf(stderr, "drawn: %d of %d\n", drawn, total);
  });
  const auto print = [&](const char* what, const Score& score, const char* wanted) {
    std::printf("  %-38s %3d of %3d right, %5.1f %%  (wanted: %s)\n", what, score.right,
                score.total, score.percent(), wanted);
  };
  if (options.json) {
    std::printf(
        "{\"held_out\": {\"right\": %d, \"total\": %d}, \"seen\": {\"right\": %d, \"total\": %d}, "
        "\"without_text\": {\"right\": %d, \"total\": %d}, \"passed\": %s}\n",
        evaluation.held_out.right, evaluation.held_out.total, evaluation.seen.right,
        evaluation.seen.total, evaluation.without_text.right, evaluation.without_text.total,
        evaluation.passed() ? "true" : "false");
  } else {
    print("combinations held out of training", evaluation.held_out, "at least 97 %");
    print("combinations seen in training", evaluation.seen, "at least 97 %");
    print("held out, prompt replaced by zeros", evaluation.without_text, "less than 25 %");
  }
  return evaluation.passed() ? 0 : 1;
}

int run(Options options) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  if (options.evaluate) return evaluate_on_cpu(options);
  if (options.prompts.empty()) options.prompts = default_prompts();
  Settings settings = settings_of(options);
  settings.device = choose_device(options.device);
  require_writable(options.output);
  Outcome outcome = demonstrate(settings);
  write_png(options.output, outcome.pictures);
  outcome.report.prompts = options.prompts;
  outcome.report.output = options.output;
  std::puts((options.json ? to_json(outcome.report) : to_text(outcome.report)).c_str());
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw std::runtime_error("the report cannot be written to the standard output");
  }
  return 0;
}

int fail(std::string reason) {
  reason = reason.substr(0, reason.find('\n'));
  std::fprintf(stderr, "text_to_image: %s\n", reason.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto code = parse_options(argc, argv, options)) return *code;
  try {
    return run(std::move(options));
  } catch (const c10::Error& error) {
    return fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
