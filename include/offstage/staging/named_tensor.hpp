// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Lists the tensors of a module under their paths, whatever kind of module it is.

#include <offstage/base/config.hpp>

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::jit {
struct Module;
}

OFFSTAGE_NAMESPACE_BEGIN

/// A tensor and the path that messages call it by, such as "blocks.1.weight".
struct NamedTensor {
  std::string path;
  at::Tensor tensor;  ///< A handle: shares the tensor with its module.
  /// A buffer: what kernels may write without raising its version, as batch norm does with its
  /// running statistics. Edit policies look at its bytes.
  bool is_buffer = false;
};

namespace detail {

/// The module behind a module, a module holder (`torch::nn::Linear`) or a pointer to a module.
template <class Module>
const auto& module_of(const Module& module) {
  if constexpr (requires { module.named_parameters(true); }) {
    return module;
  } else {
    return *module;
  }
}

template <class List>
void append_tensors(const List& list, const std::string& prefix, bool are_buffers,
                    std::vector<NamedTensor>& out) {
  for (const auto& item : list) {
    // A registered but undefined tensor (the bias of a Linear without bias) holds nothing to move.
    if (item.value().defined()) out.push_back({prefix + item.key(), item.value(), are_buffers});
  }
}

template <class Module>
void append_module(const Module& module, const std::string& prefix, std::vector<NamedTensor>& out) {
  append_tensors(module_of(module).named_parameters(true), prefix, /*are_buffers=*/false, out);
  append_tensors(module_of(module).named_buffers(true), prefix, /*are_buffers=*/true, out);
}

template <class Module>
concept HasNamedTensors = requires(const Module& module) {
  module_of(module).named_parameters(true);
  module_of(module).named_buffers(true);
};

template <class Module>
concept ScriptModuleLike = HasNamedTensors<Module> &&
    std::is_base_of_v<torch::jit::Module,
                      std::remove_cvref_t<decltype(module_of(std::declval<const Module&>()))>>;

}  // namespace detail

/// What `named_tensors` takes: a `torch::nn::Module`, a holder of one, or a pointer to one.
template <class Module>
concept ModuleLike = detail::HasNamedTensors<Module> && !detail::ScriptModuleLike<Module>;

/// The parameters, then the buffers of each module. Undefined ones are left out; a tensor that is
/// registered twice comes twice (the stager counts it once). Of several modules the paths start
/// with the module's place in the list: "0.weight", "1.weight".
///
/// A tensor that is a plain member of a module, neither parameter nor buffer, is unknown to
/// LibTorch: add it to the list by hand.
template <ModuleLike... Modules>
requires(sizeof...(Modules) > 0)
    [[nodiscard]] std::vector<NamedTensor> named_tensors(const Modules&... modules) {
  std::vector<NamedTensor> tensors;
  std::size_t place = 0;
  (detail::append_module(
       modules, sizeof...(Modules) == 1 ? std::string() : std::to_string(place++) + ".", tensors),
   ...);
  return tensors;
}

/// Lists the tensors of a module anew at each call, as `named_tensors` does: for
/// `StagerOptions::source`. Shares the module.
/// @param module  A module holder or a shared pointer to a module, not null.
template <ModuleLike Holder>
[[nodiscard]] std::function<std::vector<NamedTensor>()> tensor_source(Holder module) {
  static_assert(
      requires { *module; },
      "give a module holder or a shared pointer, which can share "
      "the module");
  return [module = std::move(module)] { return named_tensors(module); };
}

/// Does not compile: parameters and buffers of a TorchScript module are not all that it reads.
template <class... Modules>
requires((detail::ScriptModuleLike<Modules> ||
          ...)) std::vector<NamedTensor> named_tensors(const Modules&... /*modules*/) {
  static_assert(sizeof...(Modules) == 0,
                "named_tensors() would lose tensors of a TorchScript module: use script_tensors() "
                "of <offstage/staging/script_module.hpp>");
  return {};
}

OFFSTAGE_NAMESPACE_END
