"""Functions that MindSpore has compiled for itself: what optimizers do, what scales gradients and looks for overflows.

In PYNATIVE_MODE they run as graphs, too. Cells and optimizers show all that people know of them, so nobody wants to see
the hundreds of operators within; and as MindSpore decides with the first graph whether it dumps, a training that
compiles nothing itself needs no dump at all.
"""

from __future__ import annotations

import gc
from types import FunctionType
from typing import Any

from mindspore import nn

_MARK = "__wrapped_by_jit__"
"""What `mindspore.jit` writes on what it returns."""


def is_own(owner: Any) -> bool:
    """Whether what is compiled is MindSpore's own.

    Parameters
    ----------
    owner : Cell or callable
        A cell whose `construct` is compiled, or a function.
    """
    if isinstance(owner, nn.Optimizer):
        return True
    if isinstance(owner, nn.Cell):
        # One of its cells that a person has compiled is the person's.
        return hasattr(type(owner).construct, _MARK) and _is_within(type(owner).construct)
    return _is_within(owner)


def others_are_compiled() -> bool:
    """Whether there are functions that somebody else has compiled, or will have compiled when they are called."""
    return any(
        type(found) is FunctionType and _MARK in found.__dict__ and not _is_within(found) for found in gc.get_objects()
    )


def _is_within(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == "mindspore"
