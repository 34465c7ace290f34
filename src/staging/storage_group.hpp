// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Which tensors share memory, and where each shared piece goes: pure bookkeeping, moves nothing.

#include <offstage/base/config.hpp>
#include <offstage/staging/named_tensor.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

OFFSTAGE_NAMESPACE_BEGIN
namespace detail {

/// One managed tensor: the handle shared with its module, and the metadata it had when adopted.
struct TensorRecord {
  std::string path;
  std::vector<std::string> other_paths;  ///< The same tensor, listed again.
  at::Tensor tensor;
  std::size_t group = 0;            ///< Index of its storage group.
  std::int64_t storage_offset = 0;  ///< In elements of its dtype, from the start of the group.
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool is_conj = false;
  bool is_neg = false;
  bool is_inference = false;
  bool is_buffer = false;
};

/// A run of bytes of one source storage that managed tensors cover.
struct SourceRange {
  c10::Storage storage;    ///< Keeps the bytes alive until they are copied.
  std::int64_t begin = 0;  ///< Byte offset in the storage.
  std::int64_t bytes = 0;
  std::int64_t group_offset = 0;  ///< Byte offset of `begin` in the group.
};

/// Tensors that share memory: they get one piece of host memory and one piece of device memory.
struct StorageGroup {
  std::int64_t bytes = 0;  ///< 0 for an empty tensor, which never shares.
  c10::Device source_device = c10::Device(c10::kCPU);
  std::vector<SourceRange> sources;  ///< Emptied once the bytes are in the master.
  /// Null: the bytes are copied into a master. Else they stay where they are, and this is the
  /// first.
  std::byte* adopted = nullptr;
  std::vector<std::size_t> members;  ///< Indices of the tensor records.
  std::size_t chunk = 0;             ///< Which chunk holds it; 0 for an empty group too.
  std::int64_t chunk_offset = 0;     ///< Byte offset in the chunk, a multiple of the alignment.
};

/// All that one stager manages. The arena on the host and the slab on the device follow it alike,
/// so that a load is one copy a chunk.
struct StagingLayout {
  std::vector<TensorRecord> tensors;
  std::vector<StorageGroup> groups;
  /// Multiples of the alignment. Behind them one chunk for each adopted group, of exactly its
  /// bytes.
  std::vector<std::int64_t> chunk_bytes;
  std::int64_t group_bytes = 0;  ///< Sum over the groups, without padding.

  [[nodiscard]] std::int64_t padded_bytes() const noexcept;
};

/// Checks the tensors, finds which share memory, and lays the groups out in chunks.
///
/// Tensors are taken once each, by identity. Groups: tensors of one storage, and tensors of
/// different storages whose byte ranges overlap (windows on one mapping). A group spans the
/// smallest range that covers its tensors, its start rounded down so that each address keeps its
/// remainder modulo `alignment` (counted from the start of the storage).
///
/// @param component        Name of the component, for messages.
/// @param alignment        In bytes; a power of two, at least 16.
/// @param chunk_bytes_max  Upper bound of a chunk in bytes. No group is split: a larger one gets a
///                         chunk of its own.
/// @param is_pinned        Null: every group is copied. Else groups whose bytes on the host are
///                         pinned, as this tells of an address, are adopted.
/// @throws StagingError naming the component and the tensor, if one cannot be staged, or lies in
///                      pinned memory that cannot be adopted.
[[nodiscard]] StagingLayout make_staging_layout(
    std::vector<NamedTensor> tensors, const std::string& component, std::int64_t alignment,
    std::int64_t chunk_bytes_max, const std::function<bool(const void*)>& is_pinned = nullptr);

}  // namespace detail
OFFSTAGE_NAMESPACE_END
