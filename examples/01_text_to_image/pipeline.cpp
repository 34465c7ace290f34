// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"
#include "pipeline.hpp"
#include "prompt.hpp"

#include <offstage/checkpoint/safetensors_file.hpp>
#include <offstage/components/component_scope.hpp>

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <variant>

namespace text_to_image {

namespace {

enum Place : std::size_t { kTextEncoder, kTransformer, kVaeDecoder };

/// Fills a module from its file; from here on it only computes.
template <class Module>
Module load(Module module, const std::filesystem::path& file) {
  for (auto& parameter : module->parameters()) parameter.requires_grad_(false);
  offstage::SafetensorsFile::open(file).load_into(offstage::named_tensors(module));
  module->eval();
  return module;
}

at::Tensor ids_of(const std::vector<Scene>& scenes) {
  std::vector<std::int64_t> ids;
  for (const Scene& scene : scenes) {
    const TokenIds tokens = tokenize(scene);
    ids.insert(ids.end(), tokens.begin(), tokens.end());
  }
  return torch::tensor(ids).view({-1, kPromptTokens});
}

std::vector<Picture> to_pictures(const at::Tensor& decoded) {
  const at::Tensor host = decoded.cpu();
  if (!host.isfinite().all().item<bool>()) {
    throw std::runtime_error("the pictures are not made of numbers: the weights are damaged");
  }
  const at::Tensor values = ((host + 1) * 127.5).round().clamp(0, 255).contiguous();
  std::vector<Picture> pictures(static_cast<std::size_t>(values.size(0)));
  const float* next = values.const_data_ptr<float>();
  for (Picture& picture : pictures) {
    std::copy_n(next, picture.size(), picture.begin());
    next += picture.size();
  }
  return pictures;
}

}  // namespace

class Pipeline::Impl {
 public:
  Impl(const std::filesystem::path& weights, const Placing& placing)
      : text_encoder_(load(TextEncoder(static_cast<std::int64_t>(vocabulary().size())),
                           weights / "text_encoder.safetensors")),
        transformer_(load(DiffusionTransformer(), weights / "transformer.safetensors")),
        vae_decoder_(load(VaeDecoder(), weights / "vae_decoder.safetensors")),
        device_(placing.context ? placing.context->device() : c10::Device(c10::kCPU)),
        observer_(placing.observer) {
    const auto resolved = placing.policy.resolve(descriptors(), placing.offloading);
    add(resolved[kTextEncoder], offstage::named_tensors(text_encoder_), placing);
    add(resolved[kTransformer], offstage::named_tensors(transformer_), placing);
    add(resolved[kVaeDecoder], offstage::named_tensors(vae_decoder_), placing);
    for (auto& component : components_) component->enable();  // the resident ones
  }

  std::vector<Picture> generate(const Request& request) {
    const c10::InferenceMode inference;
    const at::Tensor text = use(kTextEncoder, [&] {
      const at::Tensor known = text_encoder_(ids_of(request.scenes).to(device_));
      const at::Tensor none = at::zeros_like(known);
      return at::cat({request.without_text ? none : known, none});
    });
    const at::Tensor latents = use(kTransformer, [&] { return denoise(text, request); });
    const at::Tensor decoded = use(kVaeDecoder, [&] { return vae_decoder_(latents); });
    return to_pictures(decoded);
  }

  [[nodiscard]] std::span<const Part> parts() const { return parts_; }

 private:
  void add(const offstage::ResolvedComponent& resolved, std::vector<offstage::NamedTensor> tensors,
           const Placing& placing) {
    Part part{resolved.path, resolved.placement, nullptr, std::move(tensors), 0};
    for (const auto& item : part.tensors)
      part.bytes += static_cast<std::int64_t>(item.tensor.nbytes());
    if (placing.context) {
      part.stager = std::make_shared<offstage::PinnedModuleStager>(
          part.tensors, placing.context, offstage::StagerOptions{.name = part.path});
      part.stager->set_cache(placing.cache);
    }
    components_.push_back(std::make_unique<offstage::Component>(part.path, part.stager,
                                                                part.placement, placing.cache));
    parts_.push_back(std::move(part));
  }

  /// Load, body, offload: all of it is offstage::run; the rest tells the observer.
  template <class Body>
  at::Tensor use(Place place, Body body) {
    offstage::Component& component = *components_[place];
    if (observer_ == nullptr) return offstage::run(component, body);
    const std::string& path = component.path();
    observer_->before(path);
    const at::Tensor result = offstage::run(component, [&] {
      observer_->loaded(path);
      try {
        at::Tensor value = body();
        observer_->used(path);
        return value;
      } catch (...) {
        observer_->abandoned(path);
        throw;
      }
    });
    observer_->after(path);
    return result;
  }

  /// Flow matching: from noise (time 1) along the predicted velocity to the latents (time 0). The
  /// batch is computed twice at once, with the prompts and without (classifier-free guidance).
  at::Tensor denoise(const at::Tensor& text, const Request& request) {
    const auto count = static_cast<std::int64_t>(request.scenes.size());
    auto generator = at::make_generator<at::CPUGeneratorImpl>(request.seed);
    at::Tensor latents =
        at::randn({count, kLatentChannels, kLatentSide, kLatentSide}, generator, at::kFloat)
            .to(device_);
    for (int step = 0; step < request.steps; ++step) {
      const double time = 1.0 - static_cast<double>(step) / request.steps;
      const at::Tensor times = at::full({2 * count}, time, at::kFloat).to(device_);
      const at::Tensor both = transformer_(at::cat({latents, latents}), times, text);
      const at::Tensor with = both.narrow(0, 0, count);
      const at::Tensor without = both.narrow(0, count, count);
      latents = latents - (without + (with - without) * request.guidance) / request.steps;
    }
    return latents;
  }

  TextEncoder text_encoder_;
  DiffusionTransformer transformer_;
  VaeDecoder vae_decoder_;
  const c10::Device device_;
  Observer* const observer_;
  std::vector<Part> parts_;
  std::vector<std::unique_ptr<offstage::Component>> components_;
};

const std::vector<offstage::ComponentDescriptor>& Pipeline::descriptors() {
  static const std::vector<offstage::ComponentDescriptor> list = {
      {.path = "text_encoder", .role = offstage::ComponentRole::kEncoder},
      {.path = "transformer", .role = offstage::ComponentRole::kTransformer},
      {.path = "vae_decoder", .role = offstage::ComponentRole::kVae}};
  return list;
}

Pipeline::Pipeline(const std::filesystem::path& weights, const Placing& placing)
    : impl_(std::make_unique<Impl>(weights, placing)) {}
Pipeline::~Pipeline() = default;

std::vector<Picture> Pipeline::generate(const Request& request) {
  return impl_->generate(request);
}

offstage::WarmUpRecipe Pipeline::warm_up_recipe() {
  // More steps need no more memory; with one, nothing of the first step would lie in the cache of
  // the second.
  return {.height = kSide,
          .width = kSide,
          .num_inference_steps = 2,
          .guidance_scale = 1.0,
          .extra_arguments = {{"prompts", std::int64_t{9}}}};
}

void Pipeline::warm_up(const offstage::WarmUpRequest& request) {
  if (request.height != kSide || request.width != kSide) {
    throw std::invalid_argument("the pictures have " + std::to_string(kSide) + " pixels a side");
  }
  const auto prompts = request.extra_arguments.find("prompts");
  const auto* const count = prompts == request.extra_arguments.end()
                                ? nullptr
                                : std::get_if<std::int64_t>(&prompts->second);
  if (count == nullptr || *count < 1)
    throw std::invalid_argument("'prompts' is not a number of them");
  Request largest;
  largest.scenes.resize(static_cast<std::size_t>(*count));
  largest.steps = static_cast<int>(request.num_inference_steps);
  largest.guidance = request.guidance_scale.value_or(largest.guidance);
  static_cast<void>(generate(largest));
}

std::span<const Pipeline::Part> Pipeline::parts() const {
  return impl_->parts();
}

}  // namespace text_to_image
