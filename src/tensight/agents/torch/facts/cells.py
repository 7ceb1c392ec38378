"""Modules that are called again with what they have put out, as the cells of a recurrent network are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.agents.torch.facts.reading import storage_key, strided_tensors, weak_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    import torch
    from torch import nn
    from torch.multiprocessing.reductions import StorageWeakRef

_MOST_CALLS = 10_000


class Cells:
    """The modules of a step that are given their state.

    Parameters
    ----------
    detached_line : callable (Tensor) -> str
        Returns where a tensor was detached from its graph; empty if that is unknown.
    """

    def __init__(self, detached_line: Callable[[torch.Tensor], str]) -> None:
        self._detached_line = detached_line
        self._put_out: dict[int, list[StorageWeakRef]] = {}
        self._calls: dict[int, list[set[int]]] = {}
        self._rows: dict[int, dict[str, Any]] = {}
        self._count = 0

    def enters(self, module: nn.Module, label: str, arguments: tuple[Any, ...]) -> None:
        """Note that a module with a name in its model was called, before what it puts out is noted."""
        before = [] if not label else self._put_out.get(id(module), [])
        keys = {storage.cdata for storage in before if not storage.expired()}
        states = [tensor for tensor in strided_tensors(arguments) if storage_key(tensor) in keys]
        if not states:
            return
        row = self._rows.setdefault(
            id(module), {"name": label, "type": type(module).__name__, "attached": 0, "detached": 0}
        )
        is_attached = any(state.requires_grad for state in states)
        row["attached" if is_attached else "detached"] += 1
        if not is_attached and not row.get("line"):
            row["line"] = next(filter(None, map(self._detached_line, states)), "")

    def leaves(self, module: nn.Module, result: Any) -> None:
        """Note what it puts out."""
        self._count += 1
        made = [tensor for tensor in strided_tensors(result) if tensor.grad_fn is not None]
        if made and self._count < _MOST_CALLS:
            self._put_out[id(module)] = [weak_storage(tensor) for tensor in made]
            self._calls.setdefault(id(module), []).append({tensor.grad_fn._sequence_nr() for tensor in made})

    def take(self, reached: Set[int]) -> list[dict[str, Any]]:
        """Return the rows of ``cells``, and forget the step.

        Parameters
        ----------
        reached : set of int
            The sequence numbers of the functions to which the losses of the step lead.
        """
        rows = [
            {**row, "used": sum(not reached.isdisjoint(numbers) for numbers in self._calls.get(module, ()))}
            for module, row in self._rows.items()
        ]
        self._put_out.clear()
        self._calls.clear()
        self._rows.clear()
        self._count = 0
        return rows
