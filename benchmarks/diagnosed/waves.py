"""Pictures that are harder to tell apart than a bright quarter."""

from __future__ import annotations

import torch
from learning import CLASSES


def gratings(count: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy waves of one of four directions under any light, and the direction of each."""
    labels = torch.randint(0, CLASSES, (count,))
    angle = labels * torch.pi / CLASSES
    row, column = torch.meshgrid(torch.arange(size).float(), torch.arange(size).float(), indexing="ij")
    along = row * torch.sin(angle)[:, None, None] + column * torch.cos(angle)[:, None, None]
    waves = torch.sin(1.1 * along + 6.3 * torch.rand(count, 1, 1))
    light = 1.5 * torch.randn(count, 3, 1, 1)
    return waves[:, None] + light + 0.7 * torch.randn(count, 3, size, size), labels
