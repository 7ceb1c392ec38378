"""Notes where optimizers are made; their constructor is replaced before scripts make any."""

from __future__ import annotations

import weakref
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.call_stack import is_user_code, user_stack
from tensight.agents.replacing import Replacements

if TYPE_CHECKING:
    from collections.abc import Callable

_lines: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_replaced = Replacements()


def replace() -> None:
    """Replace the constructor of optimizers by one that notes its line."""
    _replaced.put(torch.optim.Optimizer, "__init__", _noted)


def made_line(optimizer: Any) -> str:
    """Return where an optimizer was made, as train.py:31; empty if that is unknown."""
    return _lines.get(optimizer, "")


def _noted(original: Callable[..., None], optimizer: Any, *arguments: Any, **named: Any) -> None:
    constructors = [vars(kind).get("__init__") for kind in type(optimizer).__mro__]
    # Those of the script's own classes are not where it makes an optimizer.
    skipped = sum(isinstance(each, FunctionType) and is_user_code(each.__code__) for each in constructors)
    frames = list(user_stack())
    while skipped and frames and frames[0].function == "__init__":
        del frames[0]
        skipped -= 1
    if frames:
        _lines[optimizer] = frames[0].file_line
    original(optimizer, *arguments, **named)
