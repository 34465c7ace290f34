// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Reads safetensors files, and nothing that only looks like one.

#include <offstage/base/config.hpp>
#include <offstage/staging/named_tensor.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN

/// One tensor of a file.
struct SafetensorsEntry {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  ///< Of its first byte, from the start of the file.
  std::int64_t bytes = 0;
};

/// A safetensors file whose header has been checked wholly.
///
/// Stricter than the format's own reader: a name that comes twice, an empty name and fields beside
/// dtype, shape and data_offsets are errors too. The data may start at any byte, tensors may stand
/// in any order, and the header may be padded with spaces. All dtypes of the format but F4 are
/// known.
///
/// @par Errors
/// Every `CheckpointError` names the file, the tensor where there is one, and the reason. Nothing
/// is allocated for a tensor before it is known to lie within the file.
/// @par Threads
/// Immutable once open; all members may be called concurrently.
/// @par Ownership
/// Keeps the file open. Copies share it.
class SafetensorsFile {
 public:
  /// Opens the file and checks its header and size; reads no tensor.
  /// @throws CheckpointError  If the file cannot be read, is not valid, or is truncated (the
  ///         message has the declared and the actual size).
  [[nodiscard]] static SafetensorsFile open(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// All tensors, in the order of their data.
  [[nodiscard]] const std::vector<SafetensorsEntry>& tensors() const noexcept { return entries_; }

  /// The strings under `__metadata__`.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept {
    return metadata_;
  }

  /// Null if there is no such tensor.
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const noexcept;

  /// A new contiguous CPU tensor with the dtype and shape of the file.
  /// @throws CheckpointError  If there is no such tensor, or the file was cut or cannot be read.
  [[nodiscard]] at::Tensor read(std::string_view name) const;

  /// Fills the tensors of a module from those of the same names: each must be in the file with
  /// the same shape, and the file must have no others. A floating-point dtype may differ (the
  /// values are converted); every other must be the same.
  ///
  /// All is checked and read before the first byte is written. Needs host memory for the whole
  /// file.
  /// @param tensors  What `named_tensors()` lists. Tensors that require grad can only be filled
  ///                 while grad mode is off.
  /// @throws CheckpointError  Nothing was written.
  void load_into(const std::vector<NamedTensor>& tensors) const;

 private:
  class Descriptor;

  SafetensorsFile() = default;
  [[noreturn]] void fail(std::string_view tensor, const std::string& reason) const;
  [[nodiscard]] at::Tensor read(const SafetensorsEntry& entry) const;

  std::filesystem::path path_;
  std::shared_ptr<const Descriptor> descriptor_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, std::size_t, std::less<>> places_;
};

OFFSTAGE_NAMESPACE_END
