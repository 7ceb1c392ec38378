"""Containers whose entries are one module, which is called again with what it has put out."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tensight.agents.torch.inner_modules import inner_modules, weights_in

if TYPE_CHECKING:
    from collections.abc import Iterable

_LEAST = 2


class Repeated:
    """The repeated modules of models.

    Parameters
    ----------
    models : iterable of (str, Module)
        With the prefix of their names.
    """

    def __init__(self, models: Iterable[tuple[str, nn.Module]]) -> None:
        self._rows: dict[int, dict[str, Any]] = {}
        self._put_out: dict[int, weakref.ref[torch.Tensor]] = {}
        for prefix, model in models:
            for path, container in inner_modules(model):
                if not isinstance(container, (nn.Sequential, nn.ModuleList)):
                    continue
                entries = list(container._modules.values())
                first = entries[0] if len(entries) >= _LEAST else None
                if (
                    first is None
                    or any(entry is not first for entry in entries)
                    or not any(True for _ in weights_in(first))
                ):
                    continue
                self._rows[id(first)] = {
                    "name": (prefix + path).rstrip("."),
                    "type": type(first).__name__,
                    "count": len(entries),
                    "chained": 0,
                }

    def __contains__(self, module: nn.Module) -> bool:
        return id(module) in self._rows

    def enters(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Note that a repeated module is called."""
        before = self._put_out.get(id(module))
        if before is not None and arguments and before() is arguments[0]:
            self._rows[id(module)]["chained"] += 1

    def leaves(self, module: nn.Module, result: Any) -> None:
        """Note what it puts out."""
        if isinstance(result, torch.Tensor):
            self._put_out[id(module)] = weakref.ref(result)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``repeated``, and count anew."""
        rows = [dict(row) for row in self._rows.values()]
        for row in self._rows.values():
            row["chained"] = 0
        self._put_out.clear()
        return rows
