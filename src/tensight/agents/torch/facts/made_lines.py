"""Notes where a script makes what it trains with, sets modes and loads weights.

The methods are replaced before scripts call them.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from tensight.agents.call_stack import is_user_code, line_of_user, user_stack
from tensight.agents.replacing import Replacements

if TYPE_CHECKING:
    from collections.abc import Callable

_made: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_modes: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
_replaced = Replacements()
_MOST_LOADS = 64
_loads: list[dict[str, Any]] = []
_mode_lines: list[str] = []
"""Of the calls that set modes and run now."""


def replace() -> None:
    """Replace the constructors of optimizers, schedulers and loaders, and `Module.train`, by those that note lines."""
    for kind in (torch.optim.Optimizer, LRScheduler, DataLoader):
        _replaced.put(kind, "__init__", _making)
    _replaced.put(nn.Module, "train", _setting_mode)
    _replaced.put(nn.Module, "load_state_dict", _loading)


def put_back() -> None:
    """Put PyTorch's methods back."""
    _replaced.take_back()


def take_loads() -> list[dict[str, Any]]:
    """Return the rows of ``loads`` since the last call."""
    rows = list(_loads)
    _loads.clear()
    return rows


def made_line(made: Any) -> str:
    """Return where an optimizer, a scheduler or a loader was made, as train.py:31; empty if that is unknown."""
    return _line(_made, made)


def mode_line(module: nn.Module) -> str:
    """Return where the mode of a module was set last; empty if that is unknown."""
    return _line(_modes, module)


def _line(lines: weakref.WeakKeyDictionary[Any, str], of: Any) -> str:
    # A class of the script's own may not be hashable.
    with suppress(TypeError):
        return lines.get(of, "")
    return ""


def _making(original: Callable[..., None], made: Any, *arguments: Any, **named: Any) -> None:
    constructors = [vars(kind).get("__init__") for kind in type(made).__mro__]
    # Those of the script's own classes are not where it makes anything.
    skipped = sum(isinstance(each, FunctionType) and is_user_code(each.__code__) for each in constructors)
    frames = list(user_stack())
    while skipped and frames and frames[0].function == "__init__":
        del frames[0]
        skipped -= 1
    if frames:
        with suppress(TypeError):
            _made[made] = frames[0].file_line
    original(made, *arguments, **named)


def _setting_mode(original: Callable[..., Any], module: nn.Module, *arguments: Any, **named: Any) -> Any:
    # A module sets the modes of those within it.
    _mode_lines.append(_mode_lines[-1] if _mode_lines else line_of_user())
    try:
        with suppress(TypeError):
            _modes[module] = _mode_lines[-1]
        return original(module, *arguments, **named)
    finally:
        _mode_lines.pop()


def _loading(original: Callable[..., Any], module: nn.Module, state: Any, *arguments: Any, **named: Any) -> Any:
    result = original(module, state, *arguments, **named)
    missing, unexpected = getattr(result, "missing_keys", None), getattr(result, "unexpected_keys", None)
    if isinstance(missing, list) and isinstance(unexpected, list) and len(_loads) < _MOST_LOADS:
        renamed = _renamed(missing, unexpected)
        _loads.append(
            {
                "name": f"{type(module).__name__} {len(_loads) + 1}",
                "module": type(module).__name__,
                "line": line_of_user(),
                "keys": len(state),
                "unexpected": len(unexpected),
                "missing": len(missing),
                "renamed": len(renamed),
                "example": next((f"{given} for {expected}" for given, expected in renamed.items()), ""),
            }
        )
    return result


def _renamed(missing: list[str], unexpected: list[str]) -> dict[str, str]:
    """Return the keys that were not expected, and that are those of missing ones but for a prefix."""
    ends = {key.split(".", count)[-1]: key for key in missing for count in range(key.count("."))}
    renamed = {}
    for given in unexpected:
        # What is loaded has a prefix more, or lacks one.
        shorter = (given.split(".", count)[-1] for count in range(given.count(".")))
        end = next((each for each in shorter if each in ends and (each == ends[each] or each == given)), None)
        if end is not None:
            renamed[given] = ends[end]
    return renamed
