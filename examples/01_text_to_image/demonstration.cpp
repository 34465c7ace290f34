// SPDX-License-Identifier: Apache-2.0
#include "demonstration.hpp"
#include "fingerprint.hpp"
#include "guarded_host_memory.hpp"
#include "meter.hpp"
#include "other_schemes.hpp"

#include <offstage/base/bytes.hpp>
#include <offstage/retention/fixed_retention.hpp>
#include <offstage/retention/learned_retention.hpp>
#include <offstage/testing/simulator.hpp>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace text_to_image {

namespace {

using offstage::testing::Simulator;

constexpr std::int64_t kNoLimit = 8 * offstage::kGiB;
constexpr std::int64_t kStep = 2 * offstage::kMiB;  // what the device's memory is handed out in

std::shared_ptr<const offstage::RetentionPolicy> retention_of(const std::string& name) {
  if (name == "never") return std::make_shared<offstage::NeverRetention>();
  if (name == "always") return std::make_shared<offstage::AlwaysRetention>();
  if (name == "learned") return std::make_shared<offstage::LearnedRetention>();
  return std::make_shared<offstage::FixedRetention>();
}

/// All a pipeline needs to know of a device.
Placing placing_on(c10::Device device, std::shared_ptr<offstage::HostMemory> memory,
                   const Settings& settings) {
  Placing placing;
  placing.context = offstage::DeviceContext::create(device, {.host_memory = std::move(memory)});
  placing.cache = std::make_shared<offstage::BoundedAllocatorCache>(
      device, placing.context->telemetry(), retention_of(settings.retention));
  placing.policy = settings.policy;
  return placing;
}

Placing resident(Placing placing) {
  placing.offloading = false;
  placing.policy = {};
  return placing;
}

void require_identical(const std::string& resident, const std::string& staged) {
  if (resident == staged) return;
  throw std::runtime_error("the staged pictures (" + staged + ") differ from the resident ones (" +
                           resident + ")");
}

/// The bytes of the masters, in one string.
std::string masters_of(const Pipeline& pipeline) {
  std::string bytes;
  for (const auto& part : pipeline.parts()) {
    if (part.placement.residence != offstage::Residence::kStaged) continue;
    for (const auto& item : part.tensors) {
      bytes.append(static_cast<const char*>(item.tensor.const_data_ptr()), item.tensor.nbytes());
    }
  }
  return bytes;
}

std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

/// Runs on the simulated accelerator.
class Simulation {
 public:
  explicit Simulation(const Settings& settings)
      : settings_(settings),
        simulator_(Simulator::install({.device_count = 1, .capacity_bytes = kNoLimit})),
        memory_(std::make_shared<GuardedHostMemory>(simulator_.host_memory())),
        placing_(placing_on(simulator_.device(), memory_, settings)) {}

  Outcome run() {
    Outcome outcome;
    RunReport& report = outcome.report;
    report.device = "simulated accelerator (" + simulator_.device().str() + ")";
    report.counted_by_device = true;
    report.verified = settings_.verify;

    const std::vector<Picture> expected = draw(resident(placing_), kNoLimit, settings_.request);
    report.resident_sha256 = fingerprint(expected);
    report.resident_peak = simulator_.memory().peak_reserved;

    std::int64_t capacity = settings_.capacity ? *settings_.capacity : least_capacity(kWhole);
    report.resident_error = resident_error(capacity);
    if (!settings_.capacity && report.resident_error.empty()) {
      capacity = least_capacity(kInPieces);
      report.resident_error = resident_error(capacity);
    }
    report.capacity = capacity;
    try {
      draw_staged(capacity, outcome);
    } catch (const c10::OutOfMemoryError&) {
      throw std::runtime_error("a capacity of " + mebibytes(capacity) +
                               " is too small for these prompts and this policy; the smallest that "
                               "works is " +
                               std::to_string(least_capacity(kInPieces) / offstage::kMiB) + "MiB");
    }
    require_identical(report.resident_sha256, report.sha256);
    return outcome;
  }

 private:
  void start(std::int64_t capacity) {
    simulator_.reset();
    simulator_.set_capacity(0, capacity);
  }

  std::vector<Picture> draw(const Placing& placing, std::int64_t capacity, const Request& request) {
    start(capacity);
    Pipeline pipeline(settings_.weights, placing);
    return pipeline.generate(request);
  }

  void draw_staged(std::int64_t capacity, Outcome& outcome) {
    start(capacity);
    Meter meter(simulator_, *placing_.cache, settings_.verify ? memory_.get() : nullptr);
    Placing placing = placing_;
    placing.observer = &meter;
    Pipeline pipeline(settings_.weights, placing);
    const std::string masters = masters_of(pipeline);
    outcome.pictures = generate(pipeline);
    outcome.report.sha256 = fingerprint(outcome.pictures);
    outcome.report.staged_peak = meter.highest_peak();
    if (masters_of(pipeline) != masters) throw std::runtime_error("the masters have changed");
    for (const Pipeline::Part& part : pipeline.parts()) {
      PartReport report = meter.report(part);
      if (part.placement.residence == offstage::Residence::kStaged) {
        simulator_.set_capacity(0, kNoLimit);  // the other schemes need not fit
        report.by_tensor = meter.count([&] { move_by_tensor(part.tensors, *placing_.context); });
        report.by_storage = meter.count([&] { move_by_storage(part.tensors, *placing_.context); });
      }
      outcome.report.parts.push_back(std::move(report));
    }
  }

  /// With a call left out, if that was asked for.
  std::vector<Picture> generate(Pipeline& pipeline) {
    if (!settings_.sabotage) return pipeline.generate(settings_.request);
    const auto [point, number] = *settings_.sabotage;
    offstage::testing::FaultScript& faults = simulator_.faults();
    const auto before = faults.calls(point);
    faults.fail(point, offstage::testing::FaultWhen::nth(number),
                offstage::testing::Fault::kIgnored);
    auto pictures = pipeline.generate(settings_.request);
    simulator_.synchronize();  // A race that a free makes is thrown here.
    const auto calls = faults.calls(point) - before;
    throw std::runtime_error("--break: " + (number > calls
                                                ? "the staged run makes only " +
                                                      std::to_string(calls) + " calls of this kind"
                                                : std::string("no race was found")));
  }

  /// What the resident pipeline says within this capacity; empty if it fits.
  std::string resident_error(std::int64_t capacity) {
    try {
      static_cast<void>(draw(resident(placing_), capacity, settings_.request));
      return "";
    } catch (const c10::OutOfMemoryError& error) {
      return first_line(error);
    }
  }

  /// How a component may come to the device: by one load that fits at once, or also by a second
  /// try after the first ran out of memory.
  enum Loading { kWhole, kInPieces };

  /// Two steps of the sampler use the same memory as many.
  bool fits(std::int64_t capacity, Loading loading) {
    Request request = settings_.request;
    request.steps = std::min(request.steps, 2);
    start(capacity);
    try {
      Pipeline pipeline(settings_.weights, placing_);
      static_cast<void>(pipeline.generate(request));
      return loading == kInPieces ||
             std::ranges::all_of(pipeline.parts(), [](const Pipeline::Part& part) {
               return part.stager->counters().out_of_memory_retries == 0;
             });
    } catch (const c10::OutOfMemoryError&) {
      return false;
    }
  }

  /// The smallest capacity that works, found by trying.
  std::int64_t least_capacity(Loading loading) {
    std::int64_t fails = 0;
    std::int64_t works = kStep;
    while (!fits(works, loading)) {
      fails = works;
      works *= 2;
    }
    while (works - fails > kStep) {
      const std::int64_t middle = offstage::align_up((works + fails) / 2, kStep);
      (fits(middle, loading) ? works : fails) = middle;
    }
    return works;
  }

  const Settings& settings_;
  Simulator& simulator_;
  std::shared_ptr<GuardedHostMemory> memory_;
  Placing placing_;
};

Outcome run_on_cpu(const Settings& settings) {
  Outcome outcome;
  Placing placing;
  placing.policy = settings.policy;
  Pipeline pipeline(settings.weights, placing);
  outcome.pictures = pipeline.generate(settings.request);
  outcome.report.device = "cpu (nothing to stage)";
  outcome.report.sha256 = fingerprint(outcome.pictures);
  return outcome;
}

Outcome run_on_cuda(const Settings& settings) {
  Outcome outcome;
  const c10::Device device(c10::kCUDA, 0);
  const Placing placing = placing_on(device, nullptr, settings);
  {
    Pipeline pipeline(settings.weights, resident(placing));
    outcome.report.resident_sha256 = fingerprint(pipeline.generate(settings.request));
  }
  Pipeline pipeline(settings.weights, placing);
  outcome.pictures = pipeline.generate(settings.request);
  outcome.report.device = device.str();
  outcome.report.sha256 = fingerprint(outcome.pictures);
  for (const Pipeline::Part& part : pipeline.parts()) {
    outcome.report.parts.push_back(Meter::report_of_stager(part));
  }
  require_identical(outcome.report.resident_sha256, outcome.report.sha256);
  return outcome;
}

}  // namespace

Outcome demonstrate(const Settings& settings) {
  const bool simulated = settings.device.kind == DeviceKind::kSimulated;
  if (settings.capacity && !simulated) {
    throw std::runtime_error("--capacity: only the simulated accelerator can be made smaller");
  }
  if (settings.sabotage && !simulated) {
    throw std::runtime_error("--break: needs the simulated accelerator");
  }
  if (settings.verify && !simulated) {
    throw std::runtime_error("--verify-staging: needs the simulated accelerator");
  }
  Outcome outcome = simulated                                   ? Simulation(settings).run()
                    : settings.device.kind == DeviceKind::kCuda ? run_on_cuda(settings)
                                                                : run_on_cpu(settings);
  outcome.report.note = settings.device.note;
  outcome.report.retention = settings.retention;
  return outcome;
}

}  // namespace text_to_image
