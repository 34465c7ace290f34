// SPDX-License-Identifier: Apache-2.0
//
// Must not compile, and the compiler must name script_tensors().
#include <offstage/staging/named_tensor.hpp>

// As much of a TorchScript module as the overloads look at.
struct torch::jit::Module {
  [[nodiscard]] std::vector<int> named_parameters(bool /*recurse*/) const { return {}; }
  [[nodiscard]] std::vector<int> named_buffers(bool /*recurse*/) const { return {}; }
};

int main() {
  return static_cast<int>(offstage::named_tensors(torch::jit::Module()).size());
}
