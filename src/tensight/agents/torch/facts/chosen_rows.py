"""Which rows of tables are chosen by masks and indices, so that those of outputs and targets can be compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from tensight.agents.torch.facts.autograd_functions import PASSING, first_behind, kind_of, only_input_of
from tensight.agents.torch.facts.reading import array_of, is_readable, storage_key, weak_storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch.multiprocessing.reductions import StorageWeakRef

_OF_LABELS = ("cross_entropy", "nll_loss", "bce", "bce_with_logits")
_CHOOSING = ("Index", "IndexSelect")
_BEFORE = (PASSING - {*_CHOOSING, "Gather", "Slice"}) | {"LogSoftmax", "Sigmoid", "Mul", "Div"}
_COPYING = ("_to_copy", "clone")
_LEAST_ROWS, _MOST_ROWS, _MOST_CHOICES = 8, 200_000, 256


class _Choice(NamedTuple):
    """Some rows of a table: int64, in their order; and how many it has."""

    rows: NDArray[np.int64]
    of: int


class ChosenRows:
    """The rows that a step chooses, as long as its operators are seen."""

    def __init__(self) -> None:
        self._of_functions: dict[int, _Choice] = {}
        self._of_storages: dict[int, tuple[StorageWeakRef, _Choice]] = {}
        self._is_shuffled = False

    def ran(self, name: str, arguments: Sequence[Any], result: Any) -> None:
        """Note that an operator has run.

        Parameters
        ----------
        name : str
            Without namespace and overload.
        arguments : sequence
        result : object
        """
        if name in _COPYING:
            copied = self._of_storages and self._of_storages.get(storage_key(arguments[0]))
            if copied:
                self._of_storages[storage_key(result)] = weak_storage(result), copied[1]
            return
        count = len(self._of_functions) + len(self._of_storages)
        choice = _choice(name, arguments) if count < _MOST_CHOICES and is_readable(arguments[0]) else None
        if choice is None:
            return
        if len(choice.rows) == choice.of:
            # What a model puts out may be in another order than the labels.
            self._is_shuffled |= bool((choice.rows[1:] < choice.rows[:-1]).any())
            return
        if arguments[0].requires_grad and torch.is_grad_enabled():
            # Its autograd function was made just now.
            self._of_functions[torch.autograd._get_sequence_nr() - 1] = choice
        else:
            self._of_storages[storage_key(result)] = weak_storage(result), choice

    def facts_of(self, function: str, node: Any, target: torch.Tensor | None) -> dict[str, Any]:
        """Return the facts of a loss function whose input and target are some rows of tables that are as long.

        Parameters
        ----------
        function : str
        node : object
            Its autograd function.
        target : Tensor or None
        """
        if function not in _OF_LABELS or target is None or self._is_shuffled or not self._of_functions:
            return {}
        chosen = first_behind(only_input_of(node), _BEFORE)
        outputs = self._of_functions.get(chosen._sequence_nr()) if kind_of(chosen) in _CHOOSING else None
        targets = self._of_storages.get(storage_key(target))
        if outputs is None or targets is None or not target.dim():
            return {}
        same = _share_of_same(outputs, targets[1]) if len(target) == len(outputs.rows) else math.nan
        return {"same_rows": same}

    def forget(self) -> None:
        """Forget the tensors of a step."""
        self._of_functions.clear()
        self._of_storages.clear()
        self._is_shuffled = False


CHOOSING = frozenset(("index", "index_select", *_COPYING))
"""The operators that are noted."""


def _choice(name: str, arguments: Sequence[Any]) -> _Choice | None:
    """Return which rows an operator chooses, if it chooses rows alone, each at most once."""
    indices = [arguments[2]] if name == "index_select" else list(arguments[1])
    rows, table = indices[0] if len(indices) == 1 else None, arguments[0]
    if not isinstance(rows, torch.Tensor) or rows.dim() != 1 or not table.dim() or rows.numel() > _MOST_ROWS:
        return None
    if not is_readable(rows) or (name == "index_select" and arguments[1] != 0):
        return None
    values = array_of(rows)
    values = np.flatnonzero(values) if rows.dtype in (torch.bool, torch.uint8) else values.astype(np.int64) % len(table)
    is_choice = _LEAST_ROWS <= len(values) <= len(table) and len(np.unique(values)) == len(values)
    return _Choice(values, len(table)) if is_choice else None


def _share_of_same(outputs: _Choice, targets: _Choice) -> float:
    """Return the share of equal rows; NaN if the tables may have nothing to do with each other.

    What comes a few rows later is often the target: the next word, or the value after some hours.
    """
    if outputs.of != targets.of or len(outputs.rows) != len(targets.rows):
        return math.nan
    apart = targets.rows - outputs.rows
    usual, counts = np.unique(apart, return_counts=True)
    distance = abs(int(usual[counts.argmax()]))
    if 0 < distance < len(outputs.rows) and counts.max() >= len(apart) / 2:
        return math.nan
    return float((apart == 0).mean())
