// SPDX-License-Identifier: Apache-2.0
#include "other_schemes.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <utility>

namespace text_to_image {

void move_by_tensor(const std::vector<offstage::NamedTensor>& tensors,
                    const offstage::DeviceContext& context) {
  std::vector<at::Tensor> moved;
  for (const auto& item : tensors) {
    // A clone, since the tensor itself may lie in pinned memory.
    moved.push_back(item.tensor.clone().to(context.device()));
  }
}

void move_by_storage(const std::vector<offstage::NamedTensor>& tensors,
                     const offstage::DeviceContext& context) {
  std::map<const void*, at::Tensor> masters;  // by the storage they stand for
  for (const auto& item : tensors) {
    const c10::Storage& storage = item.tensor.storage();
    at::Tensor& master = masters[storage.data()];
    if (master.defined()) continue;
    const auto bytes = static_cast<std::int64_t>(storage.nbytes());
    const at::Tensor source =
        at::empty({0}, at::TensorOptions().dtype(at::kByte)).set_(storage, 0, {bytes}, {1});
    master = source.clone().pin_memory();
  }
  std::vector<at::Tensor> moved;
  for (const auto& master : masters) {
    moved.push_back(
        at::empty(master.second.sizes(), master.second.options().device(context.device())));
  }
  const c10::Stream compute = context.current_stream();
  c10::Event allocated(context.device().type());
  allocated.record(compute);
  allocated.block(context.copy_stream());
  c10::Event ready(context.device().type());
  {
    const c10::StreamGuard on_copy_stream(context.copy_stream());
    std::size_t i = 0;
    for (const auto& master : masters) moved[i++].copy_(master.second, /*non_blocking=*/true);
    ready.record(context.copy_stream());
  }
  ready.block(compute);
  c10::impl::VirtualGuardImpl(context.device().type()).synchronizeDevice(context.device().index());
}

}  // namespace text_to_image
