"""Functions that MindSpore compiles for its own use: updates of optimizers, scaling of gradients, overflow checks.

In PYNATIVE_MODE they run as graphs, too. Cells and optimizers show all that users know of them, so the hundreds of
operators inside are of no interest; and as MindSpore decides with the first graph whether it dumps, a training that
compiles nothing itself needs no dump at all.
"""

from __future__ import annotations

import gc
from types import FunctionType
from typing import Any

from mindspore import nn

_MARK = "__wrapped_by_jit__"
"""Attribute that `mindspore.jit` sets on the functions that it returns."""


def is_own(owner: Any) -> bool:
    """Whether a compiled cell or function is MindSpore's own.

    Parameters
    ----------
    owner : Cell or callable
        A cell whose `construct` is compiled, or a function.
    """
    if isinstance(owner, nn.Optimizer):
        return True
    if isinstance(owner, nn.Cell):
        # A cell of MindSpore that the user has compiled counts as the user's.
        return hasattr(type(owner).construct, _MARK) and _is_within(type(owner).construct)
    return _is_within(owner)


def others_are_compiled() -> bool:
    """Whether code outside of MindSpore has compiled functions, or functions that are compiled when called."""
    return any(
        type(candidate) is FunctionType and _MARK in candidate.__dict__ and not _is_within(candidate)
        for candidate in gc.get_objects()
    )


def _is_within(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == "mindspore"
