// SPDX-License-Identifier: Apache-2.0
#include "../device/fake_cuda_allocator.hpp"
#include "allocator_figures.hpp"
#include "telemetry_contract.hpp"

#include <offstage/device/cuda_telemetry.hpp>

#include <gtest/gtest.h>

#include <memory>

namespace offstage {
namespace {

TelemetryUnderTest cuda() {
  return under_test(installed_cuda_allocator(), std::make_shared<CudaTelemetry>(),
                    c10::Device(c10::DeviceType::CUDA, 1));
}

INSTANTIATE_TEST_SUITE_P(Backends, TelemetryContract,
                         ::testing::Values(TelemetryContractCase{"cuda", cuda}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace offstage
