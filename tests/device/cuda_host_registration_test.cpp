// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime here is a fake: this program exports its functions, so that they are found
// before those of a real one.
#include <offstage/base/error.hpp>
#include <offstage/device/cuda_host_registration.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/device/host_allocator_memory.hpp>
#include <offstage/staging/pinned_module_stager.hpp>
#include <offstage/testing/simulator.hpp>

#include <ATen/ATen.h>

#include <gmock/gmock.h>

#include <map>

namespace {

/// What the fake runtime was asked.
struct FakeRuntime {
  std::map<void*, std::size_t> registered;
  int calls = 0;
  unsigned flags = 99;
  int error = 0;  ///< What the next calls return.
  int last_error = 0;
  int last_errors_cleared = 0;
};
FakeRuntime runtime;

}  // namespace

#define OFFSTAGE_FAKE extern "C" __attribute__((visibility("default")))

OFFSTAGE_FAKE int cudaHostRegister(void* data, std::size_t bytes, unsigned flags) {
  ++runtime.calls;
  runtime.flags = flags;
  if (runtime.error != 0) return runtime.last_error = runtime.error;
  offstage::testing::Simulator::install().host_memory()->pin(data,
                                                             static_cast<std::int64_t>(bytes));
  runtime.registered[data] = bytes;
  return 0;
}

OFFSTAGE_FAKE int cudaHostUnregister(void* data) {
  ++runtime.calls;
  if (runtime.error != 0) return runtime.last_error = runtime.error;
  const auto found = runtime.registered.find(data);
  if (found == runtime.registered.end()) return runtime.last_error = 713;
  offstage::testing::Simulator::install().host_memory()->unpin(
      data, static_cast<std::int64_t>(found->second));
  runtime.registered.erase(found);
  return 0;
}

OFFSTAGE_FAKE const char* cudaGetErrorString(int error) {
  if (error == 2) return "out of memory";
  return error == 713 ? "part or all of the memory is not registered" : nullptr;
}

OFFSTAGE_FAKE int cudaGetLastError() {
  ++runtime.last_errors_cleared;
  return std::exchange(runtime.last_error, 0);
}

namespace offstage {
namespace {

class CudaHostRegistrationTest : public ::testing::Test {
 protected:
  CudaHostRegistrationTest() { runtime = {}; }

  template <class Call>
  static std::string failure(const Call& call) {
    try {
      call();
    } catch (const HostMemoryError& error) {
      return error.what();
    }
    return "done";
  }

  testing::Simulator& simulator = testing::Simulator::install({.host_rounding = true});
  std::optional<CudaHostRegistration> registration = CudaHostRegistration::find();
};

TEST_F(CudaHostRegistrationTest, FindsTheRuntimeThatIsLoadedAndCallsNothing) {
  EXPECT_TRUE(registration.has_value());
  EXPECT_EQ(runtime.calls, 0);
}

TEST_F(CudaHostRegistrationTest, RegistersARangeForAllDevices) {
  const auto memory = registration->host_memory();
  void* const data = memory->allocate(8192);
  registration->pin(data, 8192);
  EXPECT_EQ(runtime.registered.at(data), 8192U);
  EXPECT_EQ(runtime.flags, 1U) << "cudaHostRegisterPortable";
  EXPECT_TRUE(simulator.is_pinned(data, 8192));
  registration->unpin(data, 8192);
  EXPECT_TRUE(runtime.registered.empty());
  EXPECT_EQ(runtime.last_errors_cleared, 0);
  memory->free(data, 8192);
}

TEST_F(CudaHostRegistrationTest, ARefusalHasTheTextOfTheRuntimeAndLeavesNoErrorBehind) {
  runtime.error = 2;
  EXPECT_EQ(failure([&] { registration->pin(&runtime, 4096); }),
            "host memory: cudaHostRegister of 4096 bytes failed: out of memory (error 2)");
  EXPECT_EQ(runtime.last_error, 0) << "LibTorch's next kernel would report it";
  runtime.error = 0;
  EXPECT_EQ(failure([&] { registration->unpin(&runtime, 4096); }),
            "host memory: cudaHostUnregister of 4096 bytes failed: part or all of the memory is "
            "not registered (error 713)");
  EXPECT_EQ(runtime.last_error, 0);
  runtime.error = 999;
  EXPECT_EQ(failure([&] { registration->pin(&runtime, 1); }),
            "host memory: cudaHostRegister of 1 bytes failed: no text (error 999)");
}

TEST_F(CudaHostRegistrationTest, IsWhatCudaUsesUnlessToldOtherwise) {
  const auto memory = default_host_memory(c10::kCUDA);
  EXPECT_EQ(memory->name(), "cuda_registered");
  EXPECT_TRUE(memory->pins());
  EXPECT_FALSE(memory->bound_by_memlock()) << "the driver pins, not mlock";
  EXPECT_EQ(memory->slice_bytes_max(), kGiB);
  EXPECT_EQ(registration->host_memory(4096)->slice_bytes_max(), 4096);
  EXPECT_EQ(default_host_memory(simulator.device().type())->name(), "host_allocator");
}

TEST_F(CudaHostRegistrationTest, MastersAreRegisteredInSlicesAndTheirCopiesDoNotWait) {
  simulator.reset();
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 5; ++i) tensors.push_back({std::to_string(i), at::full({1024}, i)});
  {
    const auto context = DeviceContext::create(
        simulator.device(), {.host_memory = registration->host_memory(16 * kKiB)});
    PinnedModuleStager stager(tensors, context, {.chunk_bytes_max = 8 * kKiB});
    EXPECT_EQ(runtime.calls, 3) << "at most two chunks of 8 KiB each";
    const auto before = simulator.counters();
    stager.load();
    EXPECT_EQ((simulator.counters() - before).host_waits, 0);
    EXPECT_EQ(tensors[4].tensor.cpu()[1023].item<std::int64_t>(), 4);
  }
  tensors.clear();
  EXPECT_TRUE(runtime.registered.empty());
}

}  // namespace
}  // namespace offstage
