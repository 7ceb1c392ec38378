"""Moves weights by one unit in the last place, to show how rounding errors grow compared with the unchanged run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tensight.agents.torch.inner_modules import weights_in

if TYPE_CHECKING:
    from collections.abc import Iterable

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def perturb(models: Iterable[torch.nn.Module]) -> int:
    """Move the elements of all weights to the next larger and the next smaller magnitude in turns.

    Zeros stay, so that masks and pruned weights are preserved. Buffers are not changed.

    Parameters
    ----------
    models : iterable of torch.nn.Module
        Weights that they share are moved once.

    Returns
    -------
    int
        Number of weights that were moved.
    """
    moved: set[int] = set()
    with torch.no_grad():
        for weight in (weight for model in models for weight in weights_in(model)):
            # For a sharded weight, the local shard. Writing to `.data` does not change the weight's version.
            values = getattr(weight.data, "_local_tensor", weight.data)
            if id(weight) in moved or not values.is_floating_point() or values.is_meta:
                continue
            moved.add(id(weight))
            bits = values.view(_BITS[values.itemsize])
            turns = torch.arange(values.numel(), device=values.device).reshape(values.shape) % 2 * 2 - 1
            # Consecutive magnitudes have consecutive bits.
            bits.add_(torch.where((values == 0) | ~torch.isfinite(values), 0, turns).to(bits.dtype))
    return len(moved)
