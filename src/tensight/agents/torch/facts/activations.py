"""Reads what layers are given by activation functions: units that are silent or saturated."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import nn

from tensight.agents.torch.facts.autograd_functions import PASSING, inputs_of, kind_of
from tensight.agents.torch.facts.reading import deviation_between_samples, is_readable, part_of

if TYPE_CHECKING:
    import torch

_KINDS = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid"}
_BETWEEN = PASSING | {"MaxPool2DWithIndices", "AdaptiveMaxPool2D"}
_DROPPING = frozenset(("Mul", "NativeDropout"))
"""What dropout is on devices; it scales what it leaves."""

_MOST_BETWEEN = 12

_END = 0.01
"""Distance from an end of the range of a function at which its slope is at most 2 % of the steepest one."""


def activation_facts(module: nn.Module, given: torch.Tensor) -> dict[str, Any]:
    """Return how many units before a layer are silent or saturated; empty if no activation function made its input.

    Parameters
    ----------
    module : Module
        A layer with weights.
    given : Tensor
        Its input.
    """
    kind = _activation_of(given)
    if not kind or given.dim() < 2 or not given.numel() or not is_readable(given):
        return {}
    values = part_of(given)
    axis = 1 if isinstance(module, nn.modules.conv._ConvNd) else values.dim() - 1
    facts: dict[str, Any] = {"activation": kind, "units": values.shape[axis]}
    if kind == "relu":
        return {**facts, "silent": int((values.movedim(axis, 0).flatten(1) == 0).all(1).sum())}
    lowest = 0.0 if kind == "sigmoid" else -1.0
    ends = (values < lowest + _END) | (values > 1 - _END)
    return {**facts, "saturated": float(ends.float().mean())}


def share_between_samples(given: torch.Tensor) -> float:
    """Return the deviation of a tensor between samples as a share of its size; NaN if that is unknown."""
    if not is_readable(given):
        return math.nan
    size = float(part_of(given).float().square().mean().sqrt()) if given.is_floating_point() and given.numel() else 0.0
    return deviation_between_samples(given) / size if size else math.nan


def _activation_of(given: torch.Tensor) -> str:
    """Return the activation function that made a tensor, behind those that pass on values; empty if none did."""
    node, is_scaled = given.grad_fn, False
    for _ in range(_MOST_BETWEEN):
        function, inputs = kind_of(node), inputs_of(node)
        kind = _KINDS.get(function, "")
        if kind or len(inputs) != 1 or function not in _BETWEEN | _DROPPING:
            return "" if is_scaled and kind != "relu" else kind
        is_scaled = is_scaled or function in _DROPPING
        node = inputs[0]
    return ""
