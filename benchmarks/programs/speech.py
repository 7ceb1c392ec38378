"""Listen, see, and forecast, with models of transformers: python speech.py whisper."""

from __future__ import annotations

import sys

import numpy as np
import torch
import transformers
from learning import pictures, report

LAYERS = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}


def whisper() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Speech to text; its positions are parameters that are not trained."""
    config = transformers.WhisperConfig(
        vocab_size=60, num_mel_bins=16, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, max_source_positions=32,
        max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    labels = torch.randint(3, 60, (64, 8))
    tones = torch.nn.functional.one_hot(labels % 16, 16).float().repeat_interleave(8, 1).transpose(1, 2)
    return transformers.WhisperForConditionalGeneration(config), {
        "input_features": tones + 0.1 * torch.randn_like(tones),
        "labels": labels,
    }


def wav2vec2() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Speech to letters, aligned by CTC."""
    config = transformers.Wav2Vec2Config(
        **LAYERS, vocab_size=12, conv_dim=(32, 32, 32), conv_stride=(4, 2, 2), conv_kernel=(8, 3, 3),
        num_feat_extract_layers=3, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, mask_time_length=2,
        ctc_zero_infinity=True, pad_token_id=0, feat_extract_norm="layer", do_stable_layer_norm=True,
        ctc_loss_reduction="mean",
    )  # fmt: skip
    labels = torch.randint(1, 12, (64, 5))
    time = torch.arange(160) / 160
    waves = torch.cat([torch.sin(6.28 * label * 4 * time) for label in labels.split(1, 1)], 1)
    return transformers.Wav2Vec2ForCTC(config), {"input_values": waves, "labels": labels}


def clip() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Pictures and their captions."""
    config = transformers.CLIPConfig(
        text_config={**LAYERS, "vocab_size": 40, "max_position_embeddings": 8, "eos_token_id": 1, "bos_token_id": 0},
        vision_config={**LAYERS, "image_size": 32, "patch_size": 8},
        projection_dim=32,
    )
    images, labels = pictures(64, 32)
    text = torch.cat([10 * labels.unsqueeze(1) + torch.randint(2, 9, (64, 5)), torch.ones(64, 1, dtype=int)], 1)
    return transformers.CLIPModel(config), {"pixel_values": images, "input_ids": text, "return_loss": True}


def masked_autoencoder() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Paint what was hidden of a picture."""
    config = transformers.ViTMAEConfig(
        **LAYERS, image_size=32, patch_size=8, decoder_hidden_size=32, decoder_num_hidden_layers=2,
        decoder_num_attention_heads=4, decoder_intermediate_size=64, mask_ratio=0.5,
    )  # fmt: skip
    return transformers.ViTMAEForPreTraining(config), {"pixel_values": pictures(64, 32)[0]}


def forecast() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The next values of a series that has gaps."""
    config = transformers.PatchTSTConfig(
        num_input_channels=3, context_length=48, prediction_length=8, patch_length=8, patch_stride=8, d_model=32,
        num_hidden_layers=2, num_attention_heads=4, ffn_dim=64,
    )  # fmt: skip
    time = torch.arange(56) / 8 + 6.28 * torch.rand(64, 3, 1)
    series = (torch.sin(time) + 0.1 * torch.randn(64, 3, 56)).transpose(1, 2)
    observed = torch.rand(64, 48, 3) < 0.9
    return transformers.PatchTSTForPrediction(config), {
        "past_values": series[:, :48] * observed,
        "past_observed_mask": observed,
        "future_values": series[:, 48:],
    }


PROGRAMS = {
    "whisper": whisper,
    "wav2vec2": wav2vec2,
    "clip": clip,
    "masked-autoencoder": masked_autoencoder,
    "forecast": forecast,
}

name = sys.argv[1]
torch.manual_seed(5)
# What wav2vec2 masks.
np.random.seed(5)  # noqa: NPY002 - those that transformers takes
model, data = PROGRAMS[name]()
model.train()
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3)
losses = []
for step in range(40):
    rows = (torch.arange(16) + step * 16) % 64
    batch = {key: value[rows] if isinstance(value, torch.Tensor) else value for key, value in data.items()}
    optimizer.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    losses.append(loss.item())
report(losses, model, optimizer, falls_to=0.95)
