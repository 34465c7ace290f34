// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// What `Simulator::install` registers with LibTorch: once, and never taken back.

#include <offstage/base/config.hpp>

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstdint>

OFFSTAGE_NAMESPACE_BEGIN
namespace testing::detail {

/// @param is_device_allocator  False: only a `c10::Allocator`.
void register_allocator(bool is_device_allocator);
void register_guard();
void register_hooks();
void register_factories_and_views();
void register_copies();
void register_fallback();
/// What has a gradient on the CPU has one here.
void register_gradients();

/// Keeps the block of `block` from being reused before what `stream` has queued when it is freed.
/// Memory that is not of the simulated allocator is ignored.
void record_block_on_stream(const c10::DataPtr& block, const c10::Stream& stream);

/// Queues a copy of plain bytes inside a device on its current stream.
/// @param name  As reports and timelines call it.
void copy_bytes(const char* name, c10::DeviceIndex index, void* to, const void* from,
                std::int64_t bytes);

/// Gives a storage a block of another size; what fits is copied on the current stream.
/// @throws c10::Error if the storage is not resizable.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

}  // namespace testing::detail
OFFSTAGE_NAMESPACE_END
