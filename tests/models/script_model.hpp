// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What export.py writes, as a test sees it.

#include <offstage/staging/named_tensor.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace offstage::models {

struct ScriptModel {
  torch::jit::Module module;
  std::vector<at::Tensor> inputs;
  at::Tensor expected;  ///< What Python computed for the inputs.
};

/// @throws c10::Error if there is no such file, or one that export.py did not write.
[[nodiscard]] ScriptModel load_model(const std::string& path);

[[nodiscard]] at::Tensor call(ScriptModel& model, const std::vector<at::Tensor>& inputs);

/// What a stager takes over; devices in the code are set to `device`.
[[nodiscard]] std::vector<NamedTensor> tensors_of(ScriptModel& model, c10::Device device);

}  // namespace offstage::models
