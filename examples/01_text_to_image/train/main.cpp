// SPDX-License-Identifier: Apache-2.0
//
// Trains the pipeline of this example on pictures that it draws itself: first the VAE, then the
// text encoder and the diffusion transformer together. Writes the three weight files that
// text_to_image reads. Every step seeds its own random numbers, so a resumed run equals an
// uninterrupted one.

#include "../judge.hpp"
#include "../models.hpp"
#include "../prompt.hpp"
#include "../scene.hpp"
#include "progress.hpp"
#include "safetensors_writer.hpp"

#include <torch/torch.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numbers>

namespace {

using namespace text_to_image;  // NOLINT: one program
namespace fs = std::filesystem;

struct Options {
  std::int64_t vae_steps = 2400;
  std::int64_t vae_batch = 32;
  std::int64_t diffusion_steps = 2000;
  std::int64_t polish_steps = 1000;
  std::int64_t batch = 64;
  std::int64_t seed = 1;
  int threads = 1;
  bool resume = false;
  fs::path output = "weights";
  fs::path work = "train_state";
};

constexpr std::int64_t kCheckpointEvery = 100;

double schedule(std::int64_t step, std::int64_t steps) {
  constexpr double kWarmUp = 100;
  const double warm = std::min(1.0, (static_cast<double>(step) + 1) / kWarmUp);
  const double done = static_cast<double>(step) / static_cast<double>(steps);
  return warm * (0.02 + 0.98 * 0.5 * (1 + std::cos(std::numbers::pi * done)));
}

void set_rate(torch::optim::AdamW& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

/// Modules, optimiser and step of one stage, saved together in one file.
class Checkpoint {
 public:
  Checkpoint(fs::path path, std::vector<std::shared_ptr<torch::nn::Module>> modules,
             torch::optim::Optimizer& optimizer)
      : path_(std::move(path)), modules_(std::move(modules)), optimizer_(optimizer) {}

  void save(std::int64_t step) {
    torch::serialize::OutputArchive archive;
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      torch::serialize::OutputArchive part(archive.compilation_unit());
      modules_[i]->save(part);
      archive.write("module" + std::to_string(i), part);
    }
    torch::serialize::OutputArchive part(archive.compilation_unit());
    optimizer_.save(part);
    archive.write("optimizer", part);
    archive.write("step", torch::tensor(step));
    const std::string draft = path_.string() + ".tmp";
    archive.save_to(draft);
    fs::rename(draft, path_);
  }

  /// @return The step to go on with, 0 where nothing was saved.
  std::int64_t load() {
    if (!fs::exists(path_)) return 0;
    torch::serialize::InputArchive archive;
    archive.load_from(path_.string());
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      torch::serialize::InputArchive part;
      archive.read("module" + std::to_string(i), part);
      modules_[i]->load(part);
    }
    torch::serialize::InputArchive part;
    archive.read("optimizer", part);
    optimizer_.load(part);
    at::Tensor step;
    archive.read("step", step);
    return step.item<std::int64_t>();
  }

 private:
  fs::path path_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  torch::optim::Optimizer& optimizer_;
};

/// Pictures of this shape are the hardest: small, its points are thinner than a pixel of the
/// latents.
constexpr int kHardShape = 4;
static_assert(kShapes[kHardShape] == "star");

struct Data {
  at::Tensor pictures;  // (count, 3, 32, 32), -1..1
  at::Tensor ids;       // (count, 5)
  at::Tensor hard;      // places of the pictures of the hardest shape
};

at::Tensor to_tensor(const Picture& picture) {
  return torch::tensor(at::ArrayRef<float>(picture.data(), picture.size()))
                 .view({3, kSide, kSide}) /
             127.5 -
         1;
}

Data draw_training_data() {
  std::vector<at::Tensor> pictures;
  std::vector<at::Tensor> ids;
  std::vector<std::int64_t> hard;
  for (const Scene& scene : all_scenes()) {
    if (is_held_out(scene)) continue;
    if (scene.shape == kHardShape) hard.push_back(static_cast<std::int64_t>(ids.size()));
    pictures.push_back(to_tensor(draw(scene)));
    const TokenIds tokens = tokenize(scene);
    ids.push_back(torch::tensor(at::ArrayRef<std::int64_t>(tokens.data(), tokens.size())));
  }
  return {torch::stack(pictures), torch::stack(ids), torch::tensor(hard)};
}

at::Tensor pick(std::int64_t count, std::int64_t batch) {
  return torch::randint(count, {batch}, torch::kLong);
}

/// The first pictures of a batch side by side, to look at while training.
void write_ppm(const fs::path& path, const at::Tensor& pictures) {
  const auto row = ((torch::cat(pictures.unbind(0), 2) + 1) * 127.5)
                       .clamp(0, 255)
                       .to(torch::kByte)
                       .permute({1, 2, 0})
                       .contiguous();
  std::ofstream file(path, std::ios::binary);
  file << "P6\n" << row.size(1) << ' ' << row.size(0) << "\n255\n";
  file.write(static_cast<const char*>(row.const_data_ptr()), row.numel());
}

void export_weights(const fs::path& path, torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& item : module.named_parameters()) {
    tensors.emplace_back(item.key(), item.value().detach().to(torch::kBFloat16).contiguous());
  }
  for (const auto& item : module.named_buffers()) {
    tensors.emplace_back(item.key(), item.value().detach().contiguous());
  }
  write_safetensors(path, tensors);
}

struct Latents {
  at::Tensor mean;       // (count, 4, 8, 8), scaled to unit variance
  at::Tensor deviation;  // of the encoder's own noise, scaled alike
};

/// How many of the 480 combinations the judge recognises after encoding and decoding: what the
/// diffusion transformer can reach at best.
void print_reconstructed(VaeEncoder& encoder, VaeDecoder& decoder, const at::Tensor& shift,
                         const at::Tensor& scale) {
  int right = 0;
  const std::vector<Scene> scenes = all_combinations();
  for (const Scene& scene : scenes) {
    const at::Tensor latents = encoder(to_tensor(draw(scene)).unsqueeze(0)).chunk(2, 1)[0];
    const at::Tensor drawn = decoder((latents - shift) / scale);
    const at::Tensor values = ((drawn + 1) * 127.5).clamp(0, 255).contiguous();
    Picture picture{};
    std::copy_n(values.const_data_ptr<float>(), picture.size(), picture.begin());
    const Verdict verdict = judge(scene, picture);
    if (verdict.right()) {
      ++right;
    } else {
      std::printf("  wrong: %s: overlap %.3f, best other %.3f, colour %.1f\n",
                  describe(scene).c_str(), verdict.overlap, verdict.best_other,
                  verdict.colour_error);
    }
  }
  std::printf("vae: %d of %zu reconstructed right\n", right, scenes.size());
}

/// The decoder alone, with the latents as they now are and half of the pictures of the hardest
/// shape.
void polish_decoder(const Options& options, const Data& data, const Latents& latents,
                    VaeDecoder& decoder) {
  const auto parameters = decoder->parameters();
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(1e-3).weight_decay(0.01));
  Checkpoint checkpoint(options.work / "decoder.pt", {decoder.ptr()}, optimizer);
  const std::int64_t first = options.resume ? checkpoint.load() : 0;
  Progress progress("decoder  ", first, options.polish_steps);
  for (std::int64_t step = first; step < options.polish_steps; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(options.seed * 3'000'000 + step));
    const auto picked =
        torch::cat({pick(data.ids.size(0), options.vae_batch / 2),
                    data.hard.index_select(0, pick(data.hard.size(0), options.vae_batch / 2))});
    const auto deviation = latents.deviation.index_select(0, picked);
    const auto drawn =
        decoder(latents.mean.index_select(0, picked) + deviation * torch::randn_like(deviation));
    const auto difference = drawn - data.pictures.index_select(0, picked);
    const auto square = difference.square().mean();
    const auto loss = square + 0.5 * difference.abs().mean();
    optimizer.zero_grad();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(parameters, 1.0);
    set_rate(optimizer, 1e-3 * schedule(step, options.polish_steps));
    optimizer.step();
    progress.report(step, square.item<double>());
    if ((step + 1) % kCheckpointEvery == 0 || step + 1 == options.polish_steps) {
      checkpoint.save(step + 1);
    }
  }
}

Latents train_vae(const Options& options, const Data& data) {
  VaeEncoder encoder;
  VaeDecoder decoder;
  std::vector<at::Tensor> parameters = encoder->parameters();
  for (auto& parameter : decoder->parameters()) parameters.push_back(parameter);
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(2e-3).weight_decay(0.01));
  Checkpoint checkpoint(options.work / "vae.pt", {encoder.ptr(), decoder.ptr()}, optimizer);
  const std::int64_t first = options.resume ? checkpoint.load() : 0;

  Progress progress("vae      ", first, options.vae_steps);
  for (std::int64_t step = first; step < options.vae_steps; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(options.seed * 1'000'000 + step));
    const auto target =
        data.pictures.index_select(0, pick(data.pictures.size(0), options.vae_batch));
    const auto parts = encoder(target).chunk(2, 1);
    const auto log_variance = parts[1].clamp(-12, 6);
    const auto latents = parts[0] + torch::exp(0.5 * log_variance) * torch::randn_like(parts[0]);
    const auto drawn = decoder(latents);
    const auto difference = drawn - target;
    const auto kl = 0.5 * (parts[0].square() + log_variance.exp() - 1 - log_variance).mean();
    const auto square = difference.square().mean();
    const auto loss = square + 0.5 * difference.abs().mean() + 5e-5 * kl;
    optimizer.zero_grad();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(parameters, 1.0);
    set_rate(optimizer, 2e-3 * schedule(step, options.vae_steps));
    optimizer.step();
    progress.report(step, square.item<double>());
    if ((step + 1) % kCheckpointEvery == 0 || step + 1 == options.vae_steps) {
      checkpoint.save(step + 1);
      const std::int64_t shown = std::min<std::int64_t>(8, options.vae_batch);
      write_ppm(options.work / "vae.ppm",
                torch::cat({target.narrow(0, 0, shown), drawn.detach().narrow(0, 0, shown)}, 0));
    }
  }

  torch::NoGradGuard no_grad;
  std::vector<at::Tensor> means;
  std::vector<at::Tensor> deviations;
  for (const auto& batch : data.pictures.split(128)) {
    const auto parts = encoder(batch).chunk(2, 1);
    means.push_back(parts[0]);
    deviations.push_back(torch::exp(0.5 * parts[1].clamp(-12, 6)));
  }
  const auto mean = torch::cat(means);
  const auto shift = mean.mean({0, 2, 3}, true);
  const auto scale = mean.std({0, 2, 3}, true, true);
  decoder->set_scale(shift, scale);
  const Latents latents{(mean - shift) / scale, torch::cat(deviations) / scale};
  {
    const torch::AutoGradMode grad(true);
    polish_decoder(options, data, latents, decoder);
  }
  print_reconstructed(encoder, decoder, shift, scale);
  export_weights(options.output / "vae_decoder.safetensors", *decoder);
  return latents;
}

void follow(torch::nn::Module& average, torch::nn::Module& module, double keep) {
  torch::NoGradGuard no_grad;
  auto to = average.parameters();
  const auto from = module.parameters();
  for (std::size_t i = 0; i < to.size(); ++i) to[i].lerp_(from[i], 1 - keep);
}

void train_diffusion(const Options& options, const Data& data, const Latents& latents) {
  const auto words = static_cast<std::int64_t>(vocabulary().size());
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  TextEncoder text_encoder(words);
  DiffusionTransformer transformer;
  TextEncoder average_encoder(words);
  DiffusionTransformer average_transformer;
  follow(*average_encoder, *text_encoder, 0);
  follow(*average_transformer, *transformer, 0);
  std::vector<at::Tensor> parameters = transformer->parameters();
  for (auto& parameter : text_encoder->parameters()) parameters.push_back(parameter);
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(1e-3).weight_decay(0.01));
  Checkpoint checkpoint(
      options.work / "diffusion.pt",
      {text_encoder.ptr(), transformer.ptr(), average_encoder.ptr(), average_transformer.ptr()},
      optimizer);
  const std::int64_t first = options.resume ? checkpoint.load() : 0;
  const auto write = [&] {
    export_weights(options.output / "text_encoder.safetensors", *average_encoder);
    export_weights(options.output / "transformer.safetensors", *average_transformer);
  };

  Progress progress("diffusion", first, options.diffusion_steps);
  for (std::int64_t step = first; step < options.diffusion_steps; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(options.seed * 2'000'000 + step));
    const auto picked = pick(data.ids.size(0), options.batch);
    const auto deviation = latents.deviation.index_select(0, picked);
    const auto clean =
        latents.mean.index_select(0, picked) + deviation * torch::randn_like(deviation);
    const auto noise = torch::randn_like(clean);
    const auto times = torch::sigmoid(torch::randn({options.batch}));
    const auto t = times.view({-1, 1, 1, 1});
    // One condition in ten is dropped: the zeros that guidance steers away from.
    const auto kept = (torch::rand({options.batch, 1, 1}) >= 0.1).to(torch::kFloat);
    const auto text = text_encoder(data.ids.index_select(0, picked)) * kept;
    const auto velocity = transformer((1 - t) * clean + t * noise, times, text);
    const auto loss = (velocity - (noise - clean)).square().mean();
    optimizer.zero_grad();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(parameters, 1.0);
    set_rate(optimizer, 1e-3 * schedule(step, options.diffusion_steps));
    optimizer.step();
    const double keep =
        std::min(0.999, (static_cast<double>(step) + 1) / (static_cast<double>(step) + 10));
    follow(*average_encoder, *text_encoder, keep);
    follow(*average_transformer, *transformer, keep);
    progress.report(step, loss.item<double>());
    if ((step + 1) % kCheckpointEvery == 0 || step + 1 == options.diffusion_steps) {
      checkpoint.save(step + 1);
      write();
    }
  }
  write();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains the text-to-image example and writes its weights");
  app.add_option("--vae-steps", options.vae_steps, "Steps of the VAE")->capture_default_str();
  app.add_option("--vae-batch", options.vae_batch, "Pictures a step of the VAE")
      ->capture_default_str();
  app.add_option("--diffusion-steps", options.diffusion_steps,
                 "Steps of text encoder and diffusion transformer")
      ->capture_default_str();
  app.add_option("--polish-steps", options.polish_steps, "Steps of the VAE's decoder alone")
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Pictures a step after that")->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of all random numbers")->capture_default_str();
  app.add_option("--threads", options.threads, "Threads")->capture_default_str();
  app.add_option("--output", options.output, "Folder for the weight files")->capture_default_str();
  app.add_option("--work", options.work, "Folder for checkpoints")->capture_default_str();
  app.add_flag("--resume", options.resume, "Go on from the last checkpoint");
  CLI11_PARSE(app, argc, argv);
  try {
    at::set_num_threads(options.threads);
    fs::create_directories(options.output);
    fs::create_directories(options.work);
    const Data data = draw_training_data();
    std::printf("%lld training pictures\n", static_cast<long long>(data.ids.size(0)));
    torch::manual_seed(static_cast<std::uint64_t>(options.seed));
    train_diffusion(options, data, train_vae(options, data));
    return 0;
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "train: %s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train: %s\n", error.what());
    return 1;
  }
}
