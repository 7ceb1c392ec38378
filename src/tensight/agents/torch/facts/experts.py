"""Experts of a mixture: modules of a list of which a router beside it chooses some for each row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tensight.agents.torch.inner_modules import held_tensors, inner_modules, weights_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
        self._rows: dict[int, list[int]] = {}
        self._experts: dict[int, tuple[list[int], int]] = {}
        self._holders: dict[int, list[int]] = {}
        self._lists: list[dict[str, Any]] = []
        for prefix, model in models:
            for path, holder in inner_modules(model):
                for name, experts, router in _lists_of_experts(holder):
                    given, taken = [0] * len(experts), [0]
                    self._experts |= {id(expert): (given, at) for at, expert in enumerate(experts)}
                    self._holders[id(holder)] = taken
                    inside = f"{prefix}{path}".rstrip(".")
                    names = {
                        "name": f"{inside}.{name}".lstrip("."),
                        "router": router and f"{inside}.{router}".lstrip("."),
                    }
                    self._lists.append({**names, "type": type(experts[0]).__name__, "rows": given, "taken": taken})

    def __contains__(self, module: nn.Module) -> bool:
        return id(module) in self._experts or id(module) in self._holders

    def called(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Note how many rows a module is given."""
        given = arguments[0] if arguments else None
        if not isinstance(given, torch.Tensor) or not given.dim():
            return
        count = given.numel() // max(given.shape[-1], 1) if given.is_floating_point() else given.numel()
        if id(module) in self._holders:
            self._holders[id(module)][0] += count
        if id(module) in self._experts:
            rows, at = self._experts[id(module)]
            rows[at] += count

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``experts``, and count anew."""
        rows = []
        for each in self._lists:
            given, taken = each["rows"], each["taken"]
            if any(given):
                rows.append({**each, "rows": " ".join(map(str, given)), "taken": taken[0], "count": len(given)})
            given[:], taken[:] = [0] * len(given), [0]
        return rows


def _lists_of_experts(holder: nn.Module) -> Iterator[tuple[str, list[nn.Module], str]]:
    """Yield lists of modules that are alike, beside which there is a matrix with as many rows, and whose that is."""
    for name, experts in holder._modules.items():
        if not isinstance(experts, nn.ModuleList) or not _FEWEST <= len(experts) <= _MOST:
            continue
        entries = list(experts._modules.values())
        shapes = [[weight.shape for weight in weights_in(entry)] for entry in entries]
        is_alike = len({id(entry) for entry in entries}) == len(entries) and all(each == shapes[0] for each in shapes)
        inside = {id(module) for _, module in inner_modules(experts)}
        routers = [
            path for path, module in inner_modules(holder) if id(module) not in inside and _scores(module, len(entries))
        ]
        if shapes[0] and is_alike and routers:
            named = [path for path in routers if _ROUTER.search(path)]
            yield name, entries, named[0] if len(named) == 1 else ""


def _scores(router: nn.Module, count: int) -> bool:
    """Whether a module may put out a score for each expert."""
    weights = [weight for path, weight in held_tensors(router, "_parameters") if "." not in path]
    is_lookup = isinstance(router, nn.Embedding)
    return not is_lookup and any(weight.dim() == 2 and weight.shape[0] == count for weight in weights)
