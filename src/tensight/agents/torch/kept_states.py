"""Copies of values and states of random generators, which the trials of `tensight doctor` put back."""

from __future__ import annotations

import copy
import random
import sys
from collections import defaultdict, deque
from typing import Any

import torch


def copied(value: Any) -> Any:
    """Return a copy of a value in which no tensor belongs to an autograd graph.

    PyTorch's own deep copies fail on tensors that were computed with gradients.

    Parameters
    ----------
    value : object
        Tensors are also copied where they are elements of lists, tuples, dictionaries, sets and deques.

    Raises
    ------
    Exception
        Whatever the value's own deep copy raises.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad and value.is_leaf)
    kind = type(value)
    if kind is dict:
        return {name: copied(element) for name, element in value.items()}
    if kind is defaultdict:
        return defaultdict(value.default_factory, {name: copied(element) for name, element in value.items()})
    if kind is deque:
        return deque(map(copied, value), value.maxlen)
    if kind in (list, tuple, set):
        return kind(map(copied, value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*map(copied, value))
    return copy.deepcopy(value)


def is_equal(first: Any, second: Any) -> bool:
    """Return whether two values are the same, with equal elements; NaN equals NaN."""
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        return bool(torch.equal(torch.nan_to_num(first), torch.nan_to_num(second)))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(is_equal(value, second[name]) for name, value in first.items())
    if isinstance(first, (list, tuple, deque)) and isinstance(second, (list, tuple, deque)):
        return len(first) == len(second) and all(map(is_equal, first, second))
    return type(first) is type(second) and bool(first == second or first != first)


class Generators:
    """The states of the random generators, which can be restored."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        self._devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = None if numpy is None else numpy.random.get_state()

    def put_back(self) -> None:
        """Restore the states, so that the same numbers are drawn again."""
        torch.set_rng_state(self._torch)
        if self._devices:
            torch.cuda.set_rng_state_all(self._devices)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)

    def drawn(self) -> list[str]:
        """Return the names of the generators from which numbers have been drawn since."""
        now = Generators()
        names = [] if torch.equal(self._torch, now._torch) else ["torch"]
        if self._python != now._python:
            names.append("random")
        if self._numpy is not None and repr(self._numpy) != repr(now._numpy):
            names.append("numpy.random")
        # A device that was first used since has drawn at most what initialized it.
        if any(not torch.equal(*states) for states in zip(self._devices, now._devices, strict=False)):
            names.append("torch.cuda")
        return names
