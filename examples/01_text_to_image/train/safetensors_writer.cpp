// SPDX-License-Identifier: Apache-2.0
#include "safetensors_writer.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <fstream>
#include <stdexcept>

namespace text_to_image {

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  nlohmann::ordered_json header;
  std::int64_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_contiguous() || !tensor.is_cpu() ||
        (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kBFloat16)) {
      throw std::runtime_error(name + ": only contiguous CPU tensors, float or bfloat16");
    }
    const std::int64_t begin = end;
    end += static_cast<std::int64_t>(tensor.nbytes());
    header[name] = {{"dtype", tensor.scalar_type() == at::kFloat ? "F32" : "BF16"},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // keeps the data aligned
  const auto length = static_cast<std::uint64_t>(text.size());

  const std::filesystem::path draft = path.string() + ".tmp";
  std::ofstream file(draft, std::ios::binary);
  for (int i = 0; i < 8; ++i) file.put(static_cast<char>((length >> (8 * i)) & 0xFF));
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const auto& [name, tensor] : tensors) {
    file.write(static_cast<const char*>(tensor.const_data_ptr()),
               static_cast<std::streamsize>(tensor.nbytes()));
  }
  file.close();
  if (!file) throw std::runtime_error("cannot write '" + draft.string() + "'");
  std::filesystem::rename(draft, path);
}

}  // namespace text_to_image
