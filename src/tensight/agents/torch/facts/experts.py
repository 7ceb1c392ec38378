"""Experts of a mixture, of which a router chooses some for each row: modules of a list, or one that has all weights."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from tensight.agents.torch.facts.reading import array_of, is_readable
from tensight.agents.torch.inner_modules import inner_modules, weights_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FEWEST, _MOST = 4, 512
"""Number of experts."""

_ROUTER = re.compile("rout|gat(e|ing)|switch|dispatch", re.IGNORECASE)


class Experts:
    """How many rows each expert of models is given.

    Parameters
    ----------
    models : iterable of (str, Module)
        With the prefix of their names.
    """

    def __init__(self, models: Iterable[tuple[str, nn.Module]]) -> None:
        self._experts: dict[int, tuple[_Mixture, int]] = {}
        self._holders: dict[int, _Mixture] = {}
        self._together: dict[int, _Mixture] = {}
        self._mixtures: list[_Mixture] = []
        for prefix, model in models:
            for path, holder in inner_modules(model):
                for name, experts in holder._modules.items():
                    entries = _entries(experts)
                    count = len(entries) or _count_together(experts)
                    routers = _routers(holder, experts, count)
                    if experts is None or not _FEWEST <= count <= _MOST or (entries and not routers):
                        continue
                    named = [each for each in routers if _ROUTER.search(each)]
                    inside = f"{prefix}{path}".rstrip(".")
                    router = f"{inside}.{named[0]}".lstrip(".") if len(named) == 1 else ""
                    kind = type(entries[0] if entries else experts).__name__
                    mixture = _Mixture(f"{inside}.{name}".lstrip("."), kind, router, [0] * count)
                    self._mixtures.append(mixture)
                    self._experts |= {id(entry): (mixture, at) for at, entry in enumerate(entries)}
                    (self._holders if entries else self._together)[id(holder if entries else experts)] = mixture

    def __contains__(self, module: nn.Module) -> bool:
        return any(id(module) in each for each in (self._experts, self._holders, self._together))

    def called(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Note how many rows a module is given, or which experts are chosen for them."""
        given = arguments[0] if arguments else None
        if not isinstance(given, torch.Tensor) or not given.dim():
            return
        count = given.numel() // max(given.shape[-1], 1) if given.is_floating_point() else given.numel()
        if id(module) in self._holders:
            self._holders[id(module)].taken += count
        if id(module) in self._experts:
            mixture, at = self._experts[id(module)]
            mixture.rows[at] += count
        if id(module) in self._together:
            self._together[id(module)].choose(arguments[1:], count)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``experts``, and count anew."""
        rows = [mixture.row() for mixture in self._mixtures if any(mixture.rows)]
        for mixture in self._mixtures:
            mixture.rows, mixture.taken = [0] * len(mixture.rows), 0
        return rows


@dataclass
class _Mixture:
    """Some experts, and what they are given in a step.

    Attributes
    ----------
    name, type, router : str
        As in the facts.
    rows : list of int
        How many rows each of them is given.
    taken : int
        How many rows there are.
    """

    name: str
    type: str
    router: str
    rows: list[int]
    taken: int = 0

    def choose(self, arguments: Sequence[Any], count: int) -> None:
        """Note which experts are chosen for some rows, if the arguments have their numbers."""
        for chosen in arguments:
            is_of_rows = isinstance(chosen, torch.Tensor) and chosen.dim() == 2 and len(chosen) == count
            if is_of_rows and not chosen.is_floating_point() and is_readable(chosen):
                amounts = np.bincount(array_of(chosen).ravel(), minlength=len(self.rows))
                if len(amounts) == len(self.rows):
                    self.rows = (amounts + self.rows).tolist()
                    self.taken += count
                return

    def row(self) -> dict[str, Any]:
        numbers = {"count": len(self.rows), "rows": " ".join(map(str, self.rows)), "taken": self.taken}
        return {"name": self.name, "type": self.type, "router": self.router, **numbers}


def _entries(experts: nn.Module | None) -> list[nn.Module]:
    """Return the modules of a list or dictionary, if these are alike."""
    if not isinstance(experts, (nn.ModuleList, nn.ModuleDict)):
        return []
    entries = list(experts._modules.values())
    shapes = [[weight.shape for weight in weights_in(entry)] for entry in entries if entry is not None]
    is_alike = len({id(entry) for entry in entries}) == len(shapes) > 0 and all(each == shapes[0] for each in shapes)
    return [entry for entry in entries if entry is not None] if is_alike and shapes[0] else []


def _count_together(experts: nn.Module | None) -> int:
    """Return of how many experts a module has the weights, in parameters with three axes; 0 if it has not."""
    if experts is None or "expert" not in type(experts).__name__.lower():
        return 0
    sizes = [weight.shape[0] for weight in experts._parameters.values() if weight is not None and weight.dim() == 3]
    return sizes[0] if sizes and len(set(sizes)) == 1 else 0


def _routers(holder: nn.Module, experts: nn.Module | None, count: int) -> list[str]:
    """Return the names of the modules beside experts that have a matrix with as many rows."""
    inside = set() if experts is None else {id(module) for _, module in inner_modules(experts)}
    others = [(path, module) for path, module in inner_modules(holder) if id(module) not in inside]
    return [path for path, module in others if path and _scores(module, count)]


def _scores(router: nn.Module, count: int) -> bool:
    """Whether a module may put out a score for each expert."""
    weights = [weight for weight in router._parameters.values() if weight is not None]
    is_lookup = isinstance(router, nn.Embedding)
    return not is_lookup and any(weight.dim() == 2 and weight.shape[0] == count for weight in weights)
