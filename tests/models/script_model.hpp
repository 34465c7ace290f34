// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What export.py writes, as a test sees it.

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

[[nodiscard]] at::Tensor call(ScriptModel& model);

/// Moves what a call of the model reads: parameters, buffers, tensors in attributes, constants in
/// the graphs (where a trace puts plain tensor members, and a frozen module its weights), and the
/// example inputs. Device constants in the graphs are set to `device`.
///
/// Only for a model that has not run: the executor keeps what it read in the first run.
void move_model(ScriptModel& model, c10::Device device);

}  // namespace offstage::models
