// SPDX-License-Identifier: Apache-2.0
#include "safetensors_header.hpp"

#include <offstage/base/error.hpp>
#include <offstage/checkpoint/safetensors_file.hpp>

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <utility>

OFFSTAGE_NAMESPACE_BEGIN

namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMaxHeaderBytes = 100'000'000;

bool convertible(c10::ScalarType from, c10::ScalarType to) {
  return from == to || (c10::isFloatingType(from) && c10::isFloatingType(to));
}

std::string text_of(c10::IntArrayRef shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

}  // namespace

/// An open file; closed with its last owner.
class SafetensorsFile::Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path)
      : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), error_(errno) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }
  [[nodiscard]] int error() const noexcept { return error_; }

  /// The size of a regular file in bytes, -1 for anything else.
  [[nodiscard]] std::int64_t size() const noexcept {
    struct stat status {};
    if (::fstat(number_, &status) != 0 || !S_ISREG(status.st_mode)) return -1;
    return status.st_size;
  }

  /// @returns How many bytes could be read: fewer than asked for at the file's end; -1 on an error.
  [[nodiscard]] std::int64_t read(void* to, std::int64_t bytes,
                                  std::int64_t offset) const noexcept {
    std::int64_t done = 0;
    while (done < bytes) {
      const auto got = ::pread(number_, static_cast<char*>(to) + done,
                               static_cast<std::size_t>(bytes - done), offset + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return -1;
      if (got == 0) break;
      done += got;
    }
    return done;
  }

 private:
  int number_;
  int error_;
};

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.descriptor_ = std::make_shared<const Descriptor>(path);
  if (!file.descriptor_->is_open()) {
    file.fail({}, std::string("cannot be opened: ") + std::strerror(file.descriptor_->error()));
  }
  const std::int64_t size = file.descriptor_->size();
  if (size < 0) file.fail({}, "is not a regular file");
  unsigned char length_bytes[kLengthBytes] = {};
  if (size < kLengthBytes ||
      file.descriptor_->read(length_bytes, kLengthBytes, 0) != kLengthBytes) {
    file.fail({},
              "is truncated: a header length of 8 bytes is declared by the format, the file has " +
                  std::to_string(size));
  }
  std::uint64_t length = 0;
  for (int i = 0; i < kLengthBytes; ++i) length |= std::uint64_t{length_bytes[i]} << (8 * i);
  if (length == 0) file.fail({}, "declares a header of 0 bytes");
  if (length > static_cast<std::uint64_t>(kMaxHeaderBytes)) {
    file.fail({}, "declares a header of " + std::to_string(length) + " bytes; at most " +
                      std::to_string(kMaxHeaderBytes) + " are allowed");
  }
  const auto header_bytes = static_cast<std::int64_t>(length);
  const std::int64_t data_start = kLengthBytes + header_bytes;
  if (data_start > size) {
    file.fail({}, "is truncated: " + std::to_string(data_start) +
                      " bytes are declared for the header alone, the file has " +
                      std::to_string(size));
  }
  std::string json(static_cast<std::size_t>(header_bytes), '\0');
  if (file.descriptor_->read(json.data(), header_bytes, kLengthBytes) != header_bytes) {
    file.fail({}, "its header cannot be read");
  }

  detail::SafetensorsHeader header;
  try {
    header = detail::parse_safetensors_header(json);
  } catch (const detail::HeaderError& error) {
    file.fail(error.tensor(), error.what());
  }
  const std::int64_t actual = size - data_start;
  if (actual < header.data_bytes) {
    file.fail({}, "is truncated: " + std::to_string(data_start + header.data_bytes) +
                      " bytes are declared, the file has " + std::to_string(size));
  }
  if (actual > header.data_bytes) {
    file.fail(
        {}, "has " + std::to_string(actual - header.data_bytes) +
                " bytes after its last tensor: " + std::to_string(data_start + header.data_bytes) +
                " bytes are declared, the file has " + std::to_string(size));
  }
  file.entries_ = std::move(header.entries);
  file.metadata_ = std::move(header.metadata);
  for (std::size_t i = 0; i < file.entries_.size(); ++i) {
    file.entries_[i].offset += data_start;
    file.places_.emplace(file.entries_[i].name, i);
  }
  return file;
}

void SafetensorsFile::fail(std::string_view tensor, const std::string& reason) const {
  std::string where = "checkpoint '" + path_.string() + "': ";
  if (!tensor.empty()) where += "tensor '" + std::string(tensor) + "': ";
  throw CheckpointError(where + reason);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &entries_[found->second];
}

at::Tensor SafetensorsFile::read(std::string_view name) const {
  const SafetensorsEntry* const entry = find(name);
  if (entry == nullptr) fail(name, "is not in the file");
  return read(*entry);
}

at::Tensor SafetensorsFile::read(const SafetensorsEntry& entry) const {
  at::Tensor tensor = at::detail::empty_cpu(entry.shape, entry.dtype, /*pin_memory=*/false);
  auto* const data = static_cast<unsigned char*>(tensor.mutable_data_ptr());
  const std::int64_t got = descriptor_->read(data, entry.bytes, entry.offset);
  if (got < 0) fail(entry.name, std::string("cannot be read: ") + std::strerror(errno));
  if (got < entry.bytes) {
    fail(entry.name, "was truncated since the file was opened: " + std::to_string(entry.bytes) +
                         " bytes are declared, " + std::to_string(got) + " are left");
  }
  if (entry.dtype == c10::ScalarType::Bool &&
      std::any_of(data, data + entry.bytes, [](unsigned char byte) { return byte > 1; })) {
    fail(entry.name, "holds a boolean that is neither 0 nor 1");
  }
  return tensor;
}

void SafetensorsFile::load_into(const std::vector<NamedTensor>& tensors) const {
  std::set<std::string_view> wanted;
  for (const NamedTensor& named : tensors) {
    const auto& [name, tensor] = std::tie(named.path, named.tensor);
    wanted.insert(name);
    const SafetensorsEntry* const entry = find(name);
    if (entry == nullptr) fail(name, "is not in the file");
    if (tensor.sizes() != c10::IntArrayRef(entry->shape)) {
      fail(name, "has shape " + text_of(entry->shape) + " in the file, " + text_of(tensor.sizes()) +
                     " in the module");
    }
    if (!convertible(entry->dtype, tensor.scalar_type())) {
      fail(name, std::string("is ") + c10::toString(entry->dtype) + " in the file, " +
                     c10::toString(tensor.scalar_type()) + " in the module");
    }
  }
  for (const SafetensorsEntry& entry : entries_) {
    if (!wanted.contains(entry.name)) fail(entry.name, "is in the file but not in the module");
  }
  std::vector<at::Tensor> values;
  values.reserve(tensors.size());
  for (const auto& item : tensors) values.push_back(read(item.path));
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].tensor.copy_(values[i]);
}

OFFSTAGE_NAMESPACE_END
