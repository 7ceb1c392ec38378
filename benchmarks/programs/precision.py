"""Fewer bits, and batches in parts: python precision.py bf16|fp16|accumulation|checkpointing."""

from __future__ import annotations

import argparse

import torch
from learning import CLASSES, pictures, report
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.checkpoint import checkpoint


class Network(nn.Module):
    """Convolutions, attention over what they found, and a head."""

    def __init__(self, width: int = 48, *, checkpoints: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, 4), nn.GroupNorm(4, width), nn.GELU())
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True)
            for _ in range(3)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)
        self.checkpoints = checkpoints

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.stem(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False) if self.checkpoints else block(hidden)
        return self.head(self.norm(hidden).mean(1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("bf16", "fp16", "accumulation", "checkpointing"))
    parser.add_argument("--fault", default="")
    options = parser.parse_args()
    torch.manual_seed(11)
    images, labels = pictures(128, 32)
    model = Network(checkpoints=options.way == "checkpointing")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, enabled=options.way == "fp16")
    parts = 4 if options.way == "accumulation" else 1
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.way)
    if options.fault == "fp16-overflow":
        # Values that float16 cannot hold go through a layer without a norm.
        nn.init.normal_(model.blocks[1].linear1.weight, 0.0, 3e3)
    losses = []
    for step in range(30):
        rows, total = torch.arange(16) + step * 16 % 128, 0.0
        for part in rows.chunk(parts):
            with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
                loss = F.cross_entropy(model(images[part]).float(), labels[part]) / parts
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(total)
    report(losses, model, optimizer)


if __name__ == "__main__":
    main()
