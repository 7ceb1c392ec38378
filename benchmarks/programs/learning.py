"""What every program here needs: data that can be learnt, and a last word on what was learnt."""

from __future__ import annotations

import hashlib
from statistics import fmean
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

CLASSES = 4


def pictures(count: int, size: int = 64, channels: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy pictures with one bright quarter each, and which quarter that is."""
    labels = torch.randint(0, CLASSES, (count,))
    images = 0.5 * torch.randn(count, channels, size, size)
    half = size // 2
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = divmod(label, 2)
        image[:, row * half : (row + 1) * half, column * half : (column + 1) * half] += 1.0
    return images, labels


def boxes(count: int, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return pictures with one coloured rectangle each, its box (x0, y0, x1, y1), and its class."""
    images = 0.1 * torch.randn(count, 3, size, size)
    labels = torch.randint(0, 3, (count,))
    corners = torch.randint(0, size // 2, (count, 2))
    sides = torch.randint(size // 4, size // 2, (count, 2))
    found = torch.cat([corners, corners + sides], 1)
    for image, label, (left, top, right, bottom) in zip(images, labels.tolist(), found.tolist(), strict=True):
        image[label, top:bottom, left:right] += 1.0
    return images, found.float(), labels


def sentences(count: int, length: int, words: int) -> torch.Tensor:
    """Return sentences in which a word follows from the one before, most of the time; 0 and 1 do not occur."""
    inner = words - 2
    text = torch.randint(0, inner, (count, length))
    for position in range(1, length):
        follows = torch.rand(count) < 0.9
        text[:, position] = torch.where(follows, (text[:, position - 1] * 3 + 1) % inner, text[:, position])
    return text + 2


def points(count: int, features: int, spread: float = 0.6) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points around as many centres as there are classes, and their classes."""
    centres = torch.randn(CLASSES, features)
    labels = torch.randint(0, CLASSES, (count,))
    return centres[labels] + spread * torch.randn(count, features), labels


def _states(parts: Sequence[nn.Module | torch.optim.Optimizer]) -> Iterator[torch.Tensor]:
    for part in parts:
        if isinstance(part, torch.optim.Optimizer):
            for state in part.state.values():
                yield from (value for value in state.values() if isinstance(value, torch.Tensor))
        else:
            yield from (value for value in part.state_dict().values() if isinstance(value, torch.Tensor))


def fingerprint(*parts: nn.Module | torch.optim.Optimizer) -> str:
    """Return a hash of all bits of modules and of states of optimizers, and of the random numbers' state."""
    digest = hashlib.sha256()
    for tensor in [*_states(parts), torch.get_rng_state()]:
        local = getattr(tensor, "to_local", lambda tensor=tensor: tensor)().detach()
        if local.is_quantized:
            local = local.int_repr()
        digest.update(local.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def report(
    losses: Sequence[float], *parts: nn.Module | torch.optim.Optimizer, steps: int | None = None, falls_to: float = 0.9
) -> None:
    """Print the last word of a training, which tells two apart by their bits.

    Parameters
    ----------
    losses : sequence of float
        Or whatever else shall become smaller, step by step.
    *parts : Module or Optimizer
        What was trained.
    steps : int, optional
        Updates; by default as many as there are losses.
    falls_to : float
        Of the first losses, in parts, at most; else nothing was learnt.
    """
    share = max(len(losses) // 5, 1)
    first, last = fmean(losses[:share]), fmean(losses[-share:])
    print(f"loss {first:.6g} -> {last:.6g}, parameters {fingerprint(*parts)}")
    print(f"steps {len(losses) if steps is None else steps}")
    if not last <= falls_to * first:
        raise SystemExit("it did not learn")
