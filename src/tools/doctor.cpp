// SPDX-License-Identifier: Apache-2.0
#include "../staging/script_inventory.hpp"
#include "doctor.hpp"

#include <offstage/base/error.hpp>
#include <offstage/base/exception_text.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/device/generic_telemetry.hpp>
#include <offstage/staging/pinned_module_stager.hpp>
#include <offstage/staging/script_module.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <unordered_set>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN
namespace tools {

namespace {

using testing::Simulator;
using torch::jit::Module;

// As large as an accelerator that would not need this library.
constexpr std::int64_t kCapacity = 1024 * kGiB;

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string dtype_name(c10::ScalarType type) {
  std::string name = c10::toString(type);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return name;
}

std::string describe(const at::Tensor& tensor) {
  std::string text;
  for (const std::int64_t size : tensor.sizes()) {
    text += (text.empty() ? "" : "x") + std::to_string(size);
  }
  return text + ":" + dtype_name(tensor.scalar_type());
}

c10::ScalarType dtype_of(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "float64") return at::kDouble;
  if (name == "float16") return at::kHalf;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "int64") return at::kLong;
  if (name == "int32") return at::kInt;
  return at::kBool;
}

void check_readable(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    throw UsageError("'" + file + "': there is no such file; expected a TorchScript archive");
  }
  if (std::filesystem::is_directory(file, error)) {
    throw UsageError("'" + file + "': is a folder; expected a TorchScript archive");
  }
  char head[4] = {};
  std::ifstream stream(file, std::ios::binary);
  stream.read(head, sizeof head);
  if (!stream || std::memcmp(head, "PK\3\4", sizeof head) != 0) {
    throw UsageError("'" + file +
                     "': does not start as a zip archive does (PK\\3\\4 at byte 0); expected what "
                     "torch.jit.save or Module::save writes");
  }
}

Module load(const std::string& file, torch::jit::ExtraFilesMap& extra) {
  try {
    return torch::jit::load(file, c10::kCPU, extra);
  } catch (const std::exception& error) {
    throw UsageError("'" + file +
                     "': is no TorchScript archive, or a damaged one: " + first_line(error.what()));
  }
}

Module load(const std::string& file) {
  torch::jit::ExtraFilesMap none;
  return load(file, none);
}

/// Floats in [0, 1), integers and booleans 0 or 1: indices that fit anywhere.
std::vector<at::Tensor> random_inputs(const DoctorOptions& options) {
  at::Generator generator = at::detail::createCPUGenerator(options.seed);
  std::vector<at::Tensor> inputs;
  for (const InputSpec& spec : options.inputs) {
    const c10::ScalarType type = dtype_of(spec.dtype);
    at::Tensor input = at::empty(spec.sizes, at::TensorOptions().dtype(type));
    inputs.push_back(c10::isFloatingType(type) ? input.uniform_(0, 1, generator)
                                               : input.random_(0, 2, generator));
  }
  return inputs;
}

std::vector<at::Tensor> stored_inputs(const DoctorOptions& options, const std::string& bytes) {
  if (bytes.empty()) {
    throw UsageError("'" + options.file + "': has no extra file '" + options.inputs_entry +
                     "'; name one with --inputs (a tuple of tensors, written by torch.save), or "
                     "give each input as --input 2x4x8x8:float32");
  }
  const std::string where = "'" + options.file + "': extra file '" + options.inputs_entry + "' ";
  c10::IValue value;
  try {
    value = torch::jit::pickle_load({bytes.begin(), bytes.end()});
  } catch (const std::exception& error) {
    throw UsageError(where + "cannot be read: " + first_line(error.what()));
  }
  std::vector<at::Tensor> inputs;
  if (value.isTensor()) {
    inputs.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) {
      if (!item.isTensor())
        throw UsageError(where + "holds " + item.tagKind() + "; expected tensors");
      inputs.push_back(item.toTensor());
    }
  } else {
    throw UsageError(where + "holds " + value.tagKind() + "; expected a tuple of tensors");
  }
  return inputs;
}

/// All tensors of a result, in order.
std::vector<at::Tensor> flatten(const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  value.visit([&](const c10::IValue& part) {
    if (part.isTensor() && part.toTensor().defined()) tensors.push_back(part.toTensor());
    return false;
  });
  return tensors;
}

/// The bytes, which also tell 0 from -0 and one NaN from another.
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  return left.nbytes() == 0 || std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

std::vector<at::Tensor> run_here(Module& module, const std::vector<at::Tensor>& inputs) {
  std::vector<c10::IValue> arguments;
  for (const at::Tensor& input : inputs) arguments.emplace_back(input.clone());
  return flatten(module.forward(std::move(arguments)));
}

/// One staged use. What the module returns is copied back before the offload.
std::vector<at::Tensor> run_there(Module& module, PinnedModuleStager& stager,
                                  const std::vector<at::Tensor>& inputs) {
  stager.load();
  std::vector<at::Tensor> results;
  {
    std::vector<c10::IValue> arguments;
    for (const at::Tensor& input : inputs) arguments.emplace_back(input.to(stager.device()));
    for (const at::Tensor& result : flatten(module.forward(std::move(arguments)))) {
      results.push_back(result.to(at::kCPU));
    }
  }
  stager.offload();
  return results;
}

/// Empty, or what a cycle did wrong.
std::string compare(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& got) {
  if (got.size() != expected.size()) {
    return "the module returned " + std::to_string(got.size()) + " tensors instead of " +
           std::to_string(expected.size());
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!same_bytes(got[i], expected[i])) {
      return "tensor " + std::to_string(i) + " of the result (" + describe(expected[i]) +
             ") differs from the run on the CPU";
    }
  }
  return "";
}

std::string left_behind(const Simulator& simulator, const PinnedModuleStager& stager) {
  if (const std::int64_t bytes = stager.still_referenced_bytes()) {
    return "the module keeps views of " + std::to_string(bytes) +
           " bytes of device memory beyond the offload";
  }
  if (const std::int64_t bytes = simulator.memory().allocated) {
    return "the module keeps " + std::to_string(bytes) +
           " bytes of device memory of its own beyond the offload";
  }
  return "";
}

void run_cycles(Module& here, Module& there, PinnedModuleStager& stager, Simulator& simulator,
                const std::vector<at::Tensor>& inputs, std::int64_t cycles, Diagnosis& diagnosis) {
  const c10::InferenceMode inference;
  for (; diagnosis.cycles < cycles; ++diagnosis.cycles) {
    std::vector<at::Tensor> expected;
    try {
      expected = run_here(here, inputs);
    } catch (const std::exception&) {
      throw UsageError("'" + diagnosis.file + "': forward() fails on the CPU already; do the " +
                       "inputs fit? " + current_exception_text());
    }
    try {
      diagnosis.difference = compare(expected, run_there(there, stager, inputs));
    } catch (const std::exception&) {
      diagnosis.difference = "the staged run failed: " + current_exception_text();
    }
    if (diagnosis.difference.empty()) diagnosis.difference = left_behind(simulator, stager);
    if (!diagnosis.difference.empty()) return;
  }
}

void count_bytes(const Module& module, Diagnosis& diagnosis) {
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const detail::ScriptTensor& entry : detail::take_inventory(module).tensors) {
    if (!seen.insert(entry.tensor.unsafeGetTensorImpl()).second) continue;
    const std::int64_t bytes =
        entry.tensor.numel() * static_cast<std::int64_t>(entry.tensor.itemsize());
    for (Bytes* figure : {&diagnosis.by_kind[std::string(detail::to_string(entry.kind))],
                          &diagnosis.by_dtype[dtype_name(entry.tensor.scalar_type())]}) {
      ++figure->tensors;
      figure->bytes += bytes;
    }
  }
}

}  // namespace

Diagnosis diagnose(const DoctorOptions& options) {
  check_readable(options.file);
  Simulator& simulator = Simulator::install({.device_count = 1, .capacity_bytes = kCapacity});
  torch::jit::ExtraFilesMap extra = {{options.inputs_entry, ""}};
  Module module = load(options.file, extra);

  Diagnosis diagnosis;
  diagnosis.file = options.file;
  diagnosis.device = simulator.device().str();
  count_bytes(module, diagnosis);
  diagnosis.found = audit_script(module, simulator.device());
  std::vector<at::Tensor> inputs;
  if (options.cycles > 0) {
    inputs = options.inputs.empty() ? stored_inputs(options, extra.at(options.inputs_entry))
                                    : random_inputs(options);
    for (const at::Tensor& input : inputs) diagnosis.inputs.push_back(describe(input));
  }
  std::unique_ptr<PinnedModuleStager> stager;
  try {
    std::vector<NamedTensor> tensors =
        script_tensors(module, simulator.device(), {.rewrite_devices = options.rewrite_devices});
    diagnosis.remaining = audit_script(module, simulator.device());
    stager = std::make_unique<PinnedModuleStager>(
        std::move(tensors),
        DeviceContext::create(simulator.device(),
                              {.host_memory = simulator.host_memory(),
                               .telemetry = std::make_shared<GenericTelemetry>()}),
        StagerOptions{.name = "module"});
  } catch (const StagingError& error) {
    diagnosis.refusal = error.what();
    diagnosis.remaining = diagnosis.found;
    return diagnosis;
  }
  diagnosis.staged_bytes = stager->bytes();
  diagnosis.chunks = static_cast<std::int64_t>(stager->chunk_count());
  Module here = load(options.file);
  const c10::Device cpu(c10::kCPU);
  if (audit_script(here, cpu).count(AuditKind::kBakedDevice) > 0) {  // Written for another device.
    static_cast<void>(script_tensors(here, cpu, {.rewrite_devices = true}));
  }
  run_cycles(here, module, *stager, simulator, inputs, options.cycles, diagnosis);
  return diagnosis;
}

}  // namespace tools
OFFSTAGE_NAMESPACE_END
