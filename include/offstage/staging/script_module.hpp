// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// TorchScript modules as staged components. Compiled code of the target offstage::torchscript.

#include <offstage/base/config.hpp>
#include <offstage/staging/audit_report.hpp>
#include <offstage/staging/named_tensor.hpp>

#include <c10/core/Device.h>

#include <vector>

namespace torch::jit {
struct Module;  // <torch/csrc/jit/api/module.h>
}

OFFSTAGE_NAMESPACE_BEGIN

struct ScriptOptions {
  /// True: devices that the graphs or attributes name are set to the target. False: a device that
  /// is not the target is an error.
  bool rewrite_devices = false;
};

/// Lists every tensor that a call of the module can read: parameters, buffers, tensors in other
/// attributes (in lists, dicts, tuples and objects too), and the constants in the graphs of all
/// methods, where a trace keeps plain tensor members and a frozen module its weights.
///
///     torch::jit::Module unet = torch::jit::load("unet.pt");
///     PinnedModuleStager stager(script_tensors(unet, context->device()), context);
///
/// Paths are those that a person would write: "blocks.0.weight", "scales[2]", "table[\"a\"]",
/// "encoder.forward: constant %12 (aten::linear input 1)". A tensor with several names comes
/// several times; the stager counts it once.
///
/// @par What is changed
/// Two things that the executor of TorchScript would do at the first run, and that would then
/// outlive every move, are done to the graphs here:
/// - *Derived constants*, computed from tensors that are constants in the graph (such as `t(w)` in
///   a frozen module) or made on a device that the graph names, become constants themselves, so
///   that they are listed. They are computed where the constants are now, mostly on the CPU.
/// - *Baked devices* are set to `device`, if the options ask for it.
///
/// The results of a run stay the same. A graph without either is left as it is.
///
/// @par What is left alone
/// A number (a constant without dimensions) that the graph only calculates or compares with, or
/// that the host reads, stays on the host: it may meet tensors of any device there, and reading it
/// on a device would wait. Tensors that a method makes without naming a device are made on the CPU;
/// that is the module's own affair.
///
/// @param module  Not run yet, if anything has to be changed: the executor keeps what it saw in the
///                first run. Modules of the same type share their graphs: do it before copying.
/// @param device  Where the module is to run, with an index.
/// @throws InvalidArgument for a device without an index.
/// @throws StagingError naming methods, nodes and devices: a baked device that is not the target; a
///         module packed by `optimize_for_inference` or quantized; a method that has run although a
///         graph would have to be changed. Nothing was changed.
[[nodiscard]] std::vector<NamedTensor> script_tensors(torch::jit::Module& module,
                                                      c10::Device device,
                                                      ScriptOptions options = {});

/// What there is to know before a module is staged: constants that parameters and buffers do not
/// show, derived constants, devices that are not the target, packed weights, tensors that cannot be
/// staged, tensors under several names, and memory that is shared with tensors outside the module.
/// Changes nothing.
/// @throws InvalidArgument for a device without an index.
[[nodiscard]] AuditReport audit_script(const torch::jit::Module& module, c10::Device device);

OFFSTAGE_NAMESPACE_END
