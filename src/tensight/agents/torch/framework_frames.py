"""Detects what PyTorch is doing, where only its frames on the stack show it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import torch
from torch.autograd.graph import _engine_run_backward
from torch.utils import checkpoint, data

from tensight.agents.core.call_stack import user_stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tensight.agents.core.program import StackFrame

ENGINE = _engine_run_backward.__code__
"""Code of the function that calls autograd's engine."""

_FIRST_GRADIENTS = torch.autograd._make_grads.__code__
_SHARDING = os.path.join(os.path.dirname(torch.distributed.__file__), "fsdp") + os.sep
_LOADING = os.path.dirname(data.__file__)
# Between an operator and the library's function that called it are at most our own frames, and a few of the library.
_NEAREST = 16


def code_called_by_autograd() -> tuple[StackFrame, ...]:
    """Return the user's frames that autograd's engine has called: hooks, backward functions; innermost first.

    Dispatch modes of the user are left out, because they only pass on operators of others.
    """
    return tuple(frame for frame in user_stack(2, within=ENGINE) if frame.function != "__torch_dispatch__")


def begins_backward() -> bool:
    """Whether PyTorch is making the first gradients of a backward pass."""
    return any(frame.f_code is _FIRST_GRADIENTS for frame in _nearest())


def loads_data() -> bool:
    """Whether a data loader is running, between two batches."""
    return any(frame.f_code.co_filename.startswith(_LOADING) for frame in _nearest())


def gathers_weights() -> bool:
    """Whether FSDP is gathering weights, and making views of memory that is still uninitialized."""
    return any(frame.f_code.co_filename.startswith(_SHARDING) for frame in _nearest())


def computes_again() -> bool:
    """Whether activation checkpointing is recomputing the forward pass, within the backward pass."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not ENGINE:
        if frame.f_code.co_filename == checkpoint.__file__:
            return True
        frame = frame.f_back
    return False


def _nearest() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_NEAREST):
        if frame is None:
            return
        yield frame
        frame = frame.f_back
