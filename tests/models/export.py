#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes real architectures as TorchScript archives, tiny and with random weights.

    export.py FOLDER [NAME ...]

Each model comes as NAME.traced.pt and NAME.frozen.pt. Both hold two extra files: inputs.pt, a tuple
of tensors to call the module with, and expected.pt, the tensor that Python got for them. Nothing is
downloaded: the models are built from configurations. The packages are in requirements.txt.
"""

import argparse
import io
import pathlib
import warnings
import zipfile
from typing import Callable, NamedTuple

import torch

SEED = 20240607


class Model(NamedTuple):
    module: torch.nn.Module
    inputs: tuple
    forward: Callable  # (module, *inputs) -> tensor


class Traceable(torch.nn.Module):
    """One tensor out, tensors in."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model.module
        self.call = model.forward

    def forward(self, *inputs):
        return self.call(self.model, *inputs)


def ids(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(1, high, shape)


def hidden_state(module, tokens, mask):
    return module(input_ids=tokens, attention_mask=mask).last_hidden_state


def token_mask(batch: int, length: int, used: int) -> torch.Tensor:
    mask = torch.zeros(batch, length, dtype=torch.long)
    mask[:, :used] = 1
    return mask


def clip() -> Model:
    from transformers import CLIPTextConfig, CLIPTextModel
    config = CLIPTextConfig(vocab_size=99, hidden_size=32, intermediate_size=64, projection_dim=32,
                            num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16,
                            bos_token_id=0, eos_token_id=98, pad_token_id=1)
    tokens = ids(98, 2, 12)
    tokens[:, -1] = 98
    return Model(CLIPTextModel(config), (tokens, token_mask(2, 12, 12)), hidden_state)


def t5_settings() -> dict:
    return dict(vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                relative_attention_num_buckets=8, relative_attention_max_distance=16,
                feed_forward_proj="gated-gelu", dropout_rate=0.0)


def t5() -> Model:
    from transformers import T5Config, T5EncoderModel
    return Model(T5EncoderModel(T5Config(**t5_settings())),
                 (ids(99, 2, 12), token_mask(2, 12, 9)), hidden_state)


def umt5() -> Model:
    from transformers import UMT5Config, UMT5EncoderModel
    return Model(UMT5EncoderModel(UMT5Config(**t5_settings())),
                 (ids(99, 2, 12), token_mask(2, 12, 9)), hidden_state)


def pixart() -> Model:
    from diffusers import PixArtTransformer2DModel
    module = PixArtTransformer2DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=8, num_layers=2,
        cross_attention_dim=32, sample_size=8, patch_size=2, norm_num_groups=4,
        caption_channels=24, use_additional_conditions=False)

    def forward(module, latent, text, timestep, mask):
        return module(latent, encoder_hidden_states=text, timestep=timestep,
                      encoder_attention_mask=mask, return_dict=False,
                      added_cond_kwargs={"resolution": None, "aspect_ratio": None})[0]

    return Model(module, (torch.randn(2, 4, 8, 8), torch.randn(2, 6, 24), torch.tensor([3, 500]),
                          token_mask(2, 6, 4)), forward)


def flux() -> Model:
    from diffusers import FluxTransformer2DModel
    module = FluxTransformer2DModel(
        patch_size=1, in_channels=8, num_layers=1, num_single_layers=1, attention_head_dim=12,
        num_attention_heads=2, joint_attention_dim=24, pooled_projection_dim=24,
        guidance_embeds=True, axes_dims_rope=(4, 4, 4))

    def forward(module, latent, text, pooled, timestep, image_ids, text_ids, guidance):
        return module(latent, encoder_hidden_states=text, pooled_projections=pooled,
                      timestep=timestep, img_ids=image_ids, txt_ids=text_ids, guidance=guidance,
                      return_dict=False)[0]

    image_ids = torch.zeros(16, 3)
    image_ids[:, 1:] = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
    return Model(module, (torch.randn(1, 16, 8), torch.randn(1, 6, 24), torch.randn(1, 24),
                          torch.tensor([0.5]), image_ids, torch.zeros(6, 3), torch.tensor([3.5])),
                 forward)


def sd3() -> Model:
    from diffusers import SD3Transformer2DModel
    module = SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=12,
        num_attention_heads=2, joint_attention_dim=24, caption_projection_dim=24,
        pooled_projection_dim=24, out_channels=4, pos_embed_max_size=8,
        dual_attention_layers=(0,), qk_norm="rms_norm")

    def forward(module, latent, text, pooled, timestep):
        return module(latent, encoder_hidden_states=text, pooled_projections=pooled,
                      timestep=timestep, return_dict=False)[0]

    return Model(module, (torch.randn(2, 4, 8, 8), torch.randn(2, 6, 24), torch.randn(2, 24),
                          torch.tensor([3, 500])), forward)


def wan() -> Model:
    from diffusers import WanTransformer3DModel
    module = WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4,
        out_channels=4, text_dim=24, freq_dim=32, ffn_dim=48, num_layers=2, cross_attn_norm=True,
        qk_norm="rms_norm_across_heads", rope_max_seq_len=16)

    def forward(module, latent, timestep, text):
        return module(latent, timestep=timestep, encoder_hidden_states=text, return_dict=False)[0]

    return Model(module, (torch.randn(1, 4, 2, 8, 8), torch.tensor([500]), torch.randn(1, 6, 24)),
                 forward)


def decode(module, latent):
    return module.decode(latent, return_dict=False)[0]


def autoencoder_kl() -> Model:
    from diffusers import AutoencoderKL
    module = AutoencoderKL(
        block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, norm_num_groups=4,
        layers_per_block=1, sample_size=16)
    module.encoder = module.quant_conv = None
    return Model(module, (torch.randn(1, 4, 8, 8),), decode)


def wan_vae() -> Model:
    from diffusers import AutoencoderKLWan
    module = AutoencoderKLWan(base_dim=4, z_dim=4, dim_mult=[1, 2, 2, 2], num_res_blocks=1,
                              temperal_downsample=[False, True, True],
                              latents_mean=[0.0] * 4, latents_std=[1.0] * 4)
    module.encoder = module.quant_conv = None
    return Model(module, (torch.randn(1, 4, 2, 4, 4),), decode)


MODELS = {build.__name__: build for build in
          (clip, t5, umt5, pixart, flux, sd3, wan, autoencoder_kl, wan_vae)}


def randomize(module: torch.nn.Module) -> None:
    """Some models set whole layers to zero at first, which would hide what they compute."""
    for parameter in module.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.05)


def to_bytes(value) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def save(module, path: pathlib.Path, extra: dict) -> None:
    """The archive without the source ranges, which are larger than such a model's weights."""
    whole = path.with_suffix(".whole")
    torch.jit.save(module, str(whole), _extra_files=extra)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                # A new entry has no time of day: the same model is the same file.
                name = zipfile.ZipInfo(entry.filename.replace(whole.stem, path.stem, 1))
                target.writestr(name, source.read(entry), zipfile.ZIP_DEFLATED, 9)
    whole.unlink()


def export(name: str, folder: pathlib.Path) -> None:
    torch.manual_seed(SEED)
    model = MODELS[name]()
    randomize(model.module)
    module = Traceable(model).eval()
    with torch.no_grad():
        expected = module(*model.inputs)
        traced = torch.jit.trace(module, model.inputs, check_trace=False)
        frozen = torch.jit.freeze(torch.jit.trace(module, model.inputs, check_trace=False))
    extra = {"inputs.pt": to_bytes(model.inputs), "expected.pt": to_bytes(expected)}
    for kind, script in (("traced", traced), ("frozen", frozen)):
        path = folder / f"{name}.{kind}.pt"
        save(script, path, extra)
        print(f"{path.name:28} {path.stat().st_size / 1024:6.0f} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="is made if it does not exist")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(MODELS)
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    torch.set_num_threads(1)
    for name in arguments.names or MODELS:
        export(name, arguments.folder)


if __name__ == "__main__":
    main()
