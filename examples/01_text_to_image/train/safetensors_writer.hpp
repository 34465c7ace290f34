// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace text_to_image {

/// Writes named tensors (contiguous, on the CPU, bfloat16 or float) as one safetensors file, in the
/// order given; a half-written file never takes the name.
/// @throws std::runtime_error where the file cannot be written.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, at::Tensor>>& tensors);

}  // namespace text_to_image
