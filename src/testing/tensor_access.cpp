// SPDX-License-Identifier: Apache-2.0
#include "tensor_access.hpp"

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {
namespace {

Access make_access(ByteLayout layout, Use use, bool device) {
  return {.layout = std::move(layout),
          .reads = use != Use::kWrite,
          .writes = use != Use::kRead,
          .device = device};
}

}  // namespace

void add_access(Accesses& accesses, const at::Tensor& tensor, Use use) {
  if (!tensor.defined() || tensor.numel() == 0) return;
  const bool device = !tensor.is_cpu();
  ByteLayout layout(reinterpret_cast<Address>(tensor.const_data_ptr()), tensor.sizes(),
                    tensor.strides(), static_cast<std::int64_t>(tensor.itemsize()));
  accesses.push_back(make_access(std::move(layout), use, device));
}

void add_access(Accesses& accesses, const void* data, std::int64_t bytes, Use use) {
  accesses.push_back(
      make_access(ByteLayout(reinterpret_cast<Address>(data), {bytes}, {1}, 1), use, true));
}

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
