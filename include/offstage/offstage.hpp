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
#include <offstage/base/exception_text.hpp>
#include <offstage/base/number_text.hpp>
#include <offstage/base/version.hpp>
#include <offstage/checkpoint/safetensors_file.hpp>
#include <offstage/components/component.hpp>
#include <offstage/components/component_policy.hpp>
#include <offstage/components/component_scope.hpp>
#include <offstage/components/placement.hpp>
#include <offstage/device/capture_probe.hpp>
#include <offstage/device/cuda_host_registration.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/device/device_module.hpp>
#include <offstage/device/generic_telemetry.hpp>
#include <offstage/device/host_allocator_memory.hpp>
#include <offstage/device/host_budget.hpp>
#include <offstage/device/host_memory.hpp>
#include <offstage/device/module_telemetry.hpp>
#include <offstage/device/pinned_budget.hpp>
#include <offstage/device/pinned_ledger.hpp>
#include <offstage/device/registered_host_memory.hpp>
#include <offstage/device/stream_event.hpp>
#include <offstage/device/telemetry_backend.hpp>
#include <offstage/device/telemetry_figures.hpp>
#include <offstage/device/telemetry_registry.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>
#include <offstage/retention/fixed_retention.hpp>
#include <offstage/retention/host_cache_bound.hpp>
#include <offstage/retention/learned_retention.hpp>
#include <offstage/retention/retention_bounds.hpp>
#include <offstage/retention/retention_decision.hpp>
#include <offstage/retention/retention_policy.hpp>
#include <offstage/retention/retention_reason.hpp>
#include <offstage/retention/retention_state.hpp>
#include <offstage/retention/staged_bytes_token.hpp>
#include <offstage/staging/audit_report.hpp>
#include <offstage/staging/edit_policy.hpp>
#include <offstage/staging/named_tensor.hpp>
#include <offstage/staging/pinned_module_stager.hpp>
#include <offstage/staging/stageable.hpp>
#include <offstage/staging/trial_run.hpp>
#include <offstage/warm_up/run_warm_up.hpp>
#include <offstage/warm_up/warm_up_recipe.hpp>
#include <offstage/warm_up/warm_up_request.hpp>
