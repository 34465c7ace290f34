// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The text-to-image pipeline, and how offstage is put around its three components.

#include "scene.hpp"

#include <offstage/components/component_policy.hpp>
#include <offstage/device/device_context.hpp>
#include <offstage/retention/bounded_allocator_cache.hpp>
#include <offstage/staging/pinned_module_stager.hpp>
#include <offstage/warm_up/warm_up_recipe.hpp>
#include <offstage/warm_up/warm_up_request.hpp>

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace text_to_image {

/// What to draw.
struct Request {
  std::vector<Scene> scenes;  ///< One picture each, drawn together as one batch.
  int steps = 20;             ///< Of the sampler.
  double guidance = 3.0;      ///< 1 follows the prompt as learned, more exaggerates it.
  std::uint64_t seed = 0;
  bool without_text = false;  ///< Zeros in place of the prompt: what the text really contributes.
};

/// Is told where the pipeline is; for reports and checks.
class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  virtual ~Observer() = default;

  virtual void before(const std::string& component) = 0;              ///< It waits in host memory.
  virtual void loaded(const std::string& component) = 0;              ///< Its load is queued.
  virtual void used(const std::string& component) = 0;                ///< Its work is queued.
  virtual void abandoned(const std::string& component) noexcept = 0;  ///< Its work threw.
  virtual void after(const std::string& component) = 0;  ///< It waits in host memory again.
};

/// Where the components live.
struct Placing {
  /// Null: everything stays on the CPU, and offstage has nothing to do.
  std::shared_ptr<offstage::DeviceContext> context;
  /// Decides after each offload whether the allocator keeps its memory. Null: it never does.
  std::shared_ptr<offstage::BoundedAllocatorCache> cache;
  /// False: all components are on the device from the start ("resident").
  bool offloading = true;
  offstage::ComponentPolicy policy;
  /// May be null; must outlive the pipeline.
  Observer* observer = nullptr;
};

/// A text encoder, a diffusion transformer and a VAE decoder, in this order of use.
///
/// Draws the same picture for the same request on every device that computes the same floats: the
/// noise is drawn on the CPU. Not for concurrent use.
class Pipeline {
 public:
  /// One component as the reports see it.
  struct Part {
    std::string path;
    offstage::Placement placement;
    std::shared_ptr<offstage::PinnedModuleStager> stager;  ///< Null on the CPU.
    std::vector<offstage::NamedTensor> tensors;
    std::int64_t bytes = 0;  ///< Of its tensors.
  };

  /// The names by which a policy may call the components; the transformer is not among them.
  static const std::vector<offstage::ComponentDescriptor>& descriptors();

  /// Reads the weights (bfloat16 in the files, float32 from here on) and places the components;
  /// resident ones are on the device afterwards.
  /// @throws offstage::CheckpointError, offstage::PolicyError, c10::OutOfMemoryError
  Pipeline(const std::filesystem::path& weights, const Placing& placing);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// One picture for each scene; channels are whole numbers 0..255.
  [[nodiscard]] std::vector<Picture> generate(const Request& request);

  /// The largest generation that is to be expected: as many pictures at once as the program draws.
  /// The extra argument "prompts" is their number.
  [[nodiscard]] static offstage::WarmUpRecipe warm_up_recipe();

  /// For `offstage::run_warm_up`: draws pictures and drops them.
  void warm_up(const offstage::WarmUpRequest& request);

  [[nodiscard]] std::span<const Part> parts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace text_to_image
