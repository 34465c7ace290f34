// SPDX-License-Identifier: Apache-2.0
#include "doctor.hpp"

#include <offstage/base/exception_text.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>

namespace {

constexpr int kHealthy = 0;
constexpr int kNotHealthy = 1;
constexpr int kBadUsage = 2;

int fail(const std::string& message) {
  std::fputs(("offstage-doctor: " + message + "\n").c_str(), stderr);
  return kBadUsage;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Examines a TorchScript archive: the tensors in it, and what would go wrong if it were moved "
      "between host and device; then stages it on the simulated accelerator and compares each "
      "result with the CPU, byte for byte.\nExit status: 0 healthy, 1 not healthy, 2 bad usage or "
      "an unreadable file.",
      "offstage-doctor");
  offstage::tools::DoctorOptions options;
  std::vector<std::string> inputs;
  bool json = false;
  app.add_option("archive", options.file, "What torch.jit.save or Module::save has written")
      ->required();
  app.add_option("--inputs", options.inputs_entry,
                 "Extra file of the archive that holds the inputs, a tuple of tensors")
      ->capture_default_str();
  app.add_option("--input", inputs,
                 "An input of random numbers, such as 2x4x8x8:float32; once for each input");
  app.add_option("--seed", options.seed, "Seed of those")->capture_default_str();
  app.add_option("--cycles", options.cycles, "Loads, runs and offloads; 0 only examines")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000}))
      ->capture_default_str();
  app.add_flag("--rewrite-devices", options.rewrite_devices,
               "Set the devices that the code names to that of the run");
  app.add_flag("--json", json, "Print JSON");
  try {
    app.parse(argc, argv);
    for (const std::string& text : inputs) {
      options.inputs.push_back(offstage::tools::parse_input(text));
    }
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + "; --help lists what there is");
  }
  const offstage::tools::Diagnosis diagnosis = offstage::tools::diagnose(options);
  const std::string report = json ? diagnosis.to_json() + "\n" : diagnosis.to_text();
  if (std::fputs(report.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    return fail("the report cannot be written to the standard output");
  }
  return diagnosis.is_healthy() ? kHealthy : kNotHealthy;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception&) {
    return fail(offstage::current_exception_text());
  }
}
