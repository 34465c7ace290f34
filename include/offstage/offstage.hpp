// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The whole library in one include, for programs. The shipped doubles are not part of it: include
/// what you need from <offstage/testing/...>.

#include <offstage/base/bytes.hpp>
#include <offstage/base/config.hpp>
#include <offstage/base/error.hpp>
#include <offstage/base/event.hpp>
#include <offstage/base/event_sink.hpp>
#include <offstage/base/version.hpp>
#include <offstage/device/host_memory.hpp>
#include <offstage/device/telemetry_backend.hpp>
