"""Copies of a trained model that are not trained themselves: averages, targets, teachers."""

from __future__ import annotations

import gc
import math
import sys
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tensight.agents.core.call_stack import is_user_code
from tensight.agents.core.live_instances import live_instances
from tensight.agents.torch.facts.reading import plain, sample
from tensight.agents.torch.inner_modules import held_tensors, inner_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

MOST_COPIES = 8
_WORDS_OF_AVERAGES = ("ema", "avg", "average", "shadow", "target", "teacher", "momentum", "slow", "polyak", "swa")
_WORDS_OF_TARGETS = ("ema", "average", "shadow", "target", "teacher", "polyak")
_SAMPLED_TENSORS = 64
"""Number of parameters of a copy that are compared."""


class _Copy(NamedTuple):
    """A copy of a trained model.

    Attributes
    ----------
    name : str
        What holds it, or its class.
    kind : str
        module or dictionary.
    twin : str
        The trained model.
    tensors : callable
        Returns its parameters; None if it is gone.
    twins : callable
        Returns the parameters that it copies, in the same order.
    statistics : callable
        Returns the running statistics of both.
    """

    name: str
    kind: str
    twin: str
    tensors: Callable[[], list[torch.Tensor] | None]
    twins: Callable[[], list[torch.Tensor] | None]
    statistics: Callable[[], tuple[list[torch.Tensor], list[torch.Tensor]]]


class Copies:
    """The copies of the trained models of this process."""

    def __init__(self) -> None:
        self._copies: dict[str, _Copy] = {}
        self._before: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
        self._first: dict[str, float] = {}
        self._statistics: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
        self._written_back: set[str] = set()
        self._aliases: list[tuple[str, str]] = []

    def find(self, models: Sequence[tuple[str, nn.Module]], trained: set[int]) -> None:
        """Look for copies among all objects.

        Parameters
        ----------
        models : sequence of (str, Module)
        trained : set of int
            Identities of the parameters that optimizers update.
        """
        self._copies = {copy.name: copy for copy in _find(models, trained)}
        self._aliases = [
            names
            for _, model in models
            if _is_trained(model, trained) and (names := _alias(model) or _inner_alias(model)) is not None
        ]

    def weights_written(self) -> None:
        """Note which copies the trained model has become equal to, after something has written its weights."""
        for copy in self._copies.values():
            before = self._before.get(copy.name)
            tensors, twins = copy.tensors(), copy.twins()
            if before is None or tensors is None or twins is None or len(tensors) != len(twins):
                continue
            mine, theirs = _joined(tensors[:_SAMPLED_TENSORS]), _joined(twins[:_SAMPLED_TENSORS])
            if np.array_equal(mine, theirs) and not np.array_equal(*before):
                self._written_back.add(copy.name)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``models``."""
        rows = []
        for copy in self._copies.values():
            tensors, twins = copy.tensors(), copy.twins()
            if tensors is None or twins is None or len(tensors) != len(twins):
                continue
            mine, theirs = _joined(tensors[:_SAMPLED_TENSORS]), _joined(twins[:_SAMPLED_TENSORS])
            if mine.shape == theirs.shape:
                dtype = str(tensors[0].dtype).removeprefix("torch.")
                is_written_back = copy.name in self._written_back
                rows.append({**self._row(copy, mine, theirs), "dtype": dtype, "is_written_back": is_written_back})
        self._written_back.clear()
        rows += [{"name": name, "kind": "alias", "twin": twin, "is_equal": True} for name, twin in self._aliases]
        return rows

    def _row(self, copy: _Copy, mine: NDArray[Any], theirs: NDArray[Any]) -> dict[str, Any]:
        before, followed = self._before.get(copy.name, (None, theirs))
        self._before[copy.name] = mine, theirs
        size = float(np.linalg.norm(theirs))
        distance = float(np.linalg.norm(mine - theirs)) / size if size else math.nan
        row = {
            "name": copy.name,
            "kind": copy.kind,
            "twin": copy.twin,
            "is_average": any(word in copy.name.lower() for word in _WORDS_OF_AVERAGES),
            "is_equal": bool((mine == theirs).all()),
            "distance": distance,
            "first_distance": self._first.setdefault(copy.name, distance),
            "is_known": before is not None and before.shape == mine.shape,
        }
        if before is not None and before.shape == mine.shape:
            # It is updated after the optimizer, mostly, and so after it was last read.
            moved, wants = mine - before, followed != before
            row |= {
                "moved": bool(moved.any()),
                "pace": max(_share_of_way(moved, followed - before), _share_of_way(moved, theirs - before)),
                "stuck": float((wants & (moved == 0)).sum() / wants.sum()) if bool(wants.any()) else math.nan,
            }
        return row | self._statistics_row(copy)

    def _statistics_row(self, copy: _Copy) -> dict[str, Any]:
        mine, theirs = copy.statistics()
        if not mine or len(mine) != len(theirs):
            return {}
        now = _joined(mine), _joined(theirs)
        before = self._statistics.get(copy.name)
        self._statistics[copy.name] = now
        if before is None or before[0].shape != now[0].shape:
            return {}
        is_left = np.array_equal(before[0], now[0]) and not np.array_equal(before[1], now[1])
        return {"leaves_statistics": is_left}


def _joined(tensors: Sequence[torch.Tensor]) -> NDArray[Any]:
    """Return samples of several tensors as one array."""
    return np.concatenate([sample(tensor).astype(np.float64) for tensor in tensors])


def _share_of_way(moved: NDArray[Any], way: NDArray[Any]) -> float:
    square = float((way * way).sum())
    return float((moved * way).sum()) / square if square else math.nan


def _find(models: Sequence[tuple[str, nn.Module]], trained: set[int]) -> Iterator[_Copy]:
    counts: dict[str, int] = {}
    for twin, model in models:
        weights = dict(held_tensors(model, "_parameters"))
        if len(weights) < 2 or not any(id(weight) in trained for weight in weights.values()):
            continue
        modules = [module for module in live_instances(nn.Module) if module is not model]
        for module in modules:
            held = _named_like(module, weights)
            if held is None or any(id(tensor) in trained for tensor in held) or len(counts) >= MOST_COPIES:
                continue
            name = _numbered(_holder(module) or type(module).__name__, counts)
            yield _Copy(name, "module", twin, _parameters(module), _parameters(model), _both_statistics(module, model))
        first = next(iter(weights))
        for given in live_instances(dict):
            if first not in given or len(given) > 4 * len(weights) or given is weights:
                continue
            tensors = _dictionary_like(given, weights)
            if tensors is None or any(id(each) in trained or _is_view(each, trained) for each in tensors):
                continue
            holder = _holder(given)
            # Others may be stored to be loaded later.
            if any(word in holder.lower() for word in _WORDS_OF_AVERAGES) and len(counts) < MOST_COPIES:
                name = _numbered(holder, counts)
                references = [weakref.ref(each) for each in tensors]
                yield _Copy(name, "dictionary", twin, _alive(references), _parameters(model), lambda: ([], []))


def _is_trained(model: nn.Module, trained: set[int]) -> bool:
    return any(id(weight) in trained for _, weight in held_tensors(model, "_parameters"))


def _alias(model: nn.Module) -> tuple[str, str] | None:
    """Return two names of a model of which one, that comes first, is that of a copy; None if it has no such."""
    holders = [(referrer, "") for referrer in gc.get_referrers(model) if type(referrer) is dict]
    for referrer in gc.get_referrers(model):
        attributes = getattr(referrer, "__dict__", None) if _is_plain_object(referrer) else None
        if type(attributes) is dict:
            holders.append((attributes, f"{type(referrer).__name__}."))
    frame = sys._getframe()
    while (back := frame.f_back) is not None:
        frame = back
        if is_user_code(frame.f_code):
            # The variables of a function would be kept alive in its frame by being read.
            holders.append((frame.f_globals, ""))
    for holder, prefix in holders:
        names = _two_names(holder, model)
        if names is not None:
            return prefix + names[0], prefix + names[1]
    return None


def _inner_alias(model: nn.Module) -> tuple[str, str] | None:
    """Return such names of a module in a model."""
    for path, module in inner_modules(model):
        for inner in module._modules.values():
            names = None if inner is None else _two_names(module._modules, inner)
            if names is not None:
                prefix = f"{path}." if path else ""
                return prefix + names[0], prefix + names[1]
    return None


def is_name_of_target(name: str) -> bool:
    """Whether a variable is called as a target network or an average mostly is."""
    return any(word in name.lower() for word in _WORDS_OF_TARGETS)


def _two_names(holder: Mapping[Any, Any], module: nn.Module) -> tuple[str, str] | None:
    names = [key for key, value in list(holder.items()) if value is module and isinstance(key, str)]
    copies = [name for name in names if is_name_of_target(name)]
    others = [name for name in names if name not in copies]
    return (copies[0], others[0]) if copies and others else None


def _parameters(module: nn.Module) -> Callable[[], list[torch.Tensor] | None]:
    reference = weakref.ref(module)

    def parameters() -> list[torch.Tensor] | None:
        held = reference()
        return None if held is None else [tensor for _, tensor in held_tensors(held, "_parameters")]

    return parameters


def _alive(references: Sequence[weakref.ref[torch.Tensor]]) -> Callable[[], list[torch.Tensor] | None]:
    def tensors() -> list[torch.Tensor] | None:
        alive = [reference() for reference in references]
        present = [tensor for tensor in alive if tensor is not None]
        return present if len(present) == len(alive) else None

    return tensors


def _both_statistics(
    module: nn.Module, model: nn.Module
) -> Callable[[], tuple[list[torch.Tensor], list[torch.Tensor]]]:
    copy, original = weakref.ref(module), weakref.ref(model)

    def statistics() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        mine, theirs = copy(), original()
        if mine is None or theirs is None:
            return [], []
        return _running_means(mine), _running_means(theirs)

    return statistics


def _running_means(model: nn.Module) -> list[torch.Tensor]:
    return [plain(tensor) for name, tensor in held_tensors(model, "_buffers") if name.endswith("running_mean")]


def _numbered(name: str, counts: dict[str, int]) -> str:
    counts[name] = number = counts.get(name, 0) + 1
    return name if number == 1 else f"{name} {number}"


def _holder(held: object) -> str:
    """Return what holds an object, as ModelEma.module; empty if only a local variable does."""
    for referrer in gc.get_referrers(held):
        if type(referrer) is not dict:
            # An object whose dictionary Python has not made yet.
            attributes = getattr(referrer, "__dict__", None) if _is_plain_object(referrer) else None
            name = next((key for key, value in (attributes or {}).items() if value is held), None)
            if name is not None:
                return f"{type(referrer).__name__}.{name}"
            continue
        key = next((key for key, value in referrer.items() if value is held and isinstance(key, str)), None)
        if key is None or key.startswith("_"):
            continue
        if "__name__" in referrer and "__builtins__" in referrer:
            return key
        for owner in gc.get_referrers(referrer):
            if getattr(owner, "__dict__", None) is referrer:
                return f"{type(owner).__name__}.{key}"
            # The dictionary of a module's inner modules.
            if type(owner) is dict and owner.get("_modules") is referrer:
                module = next(
                    (each for each in gc.get_referrers(owner) if getattr(each, "__dict__", None) is owner), None
                )
                return key if module is None else f"{type(module).__name__}.{key}"
    return ""


def _is_plain_object(referrer: object) -> bool:
    kind = type(referrer)
    return kind.__module__ not in ("builtins", "types") and not issubclass(kind, (nn.Module, torch.Tensor, type))


def _named_like(module: nn.Module, weights: Mapping[str, torch.Tensor]) -> list[torch.Tensor] | None:
    held = list(held_tensors(module, "_parameters"))
    if len(held) != len(weights):
        return None
    for (name, tensor), (other, weight) in zip(held, weights.items(), strict=True):
        if name != other or tensor.shape != weight.shape:
            return None
    return [tensor for _, tensor in held]


def _dictionary_like(given: Mapping[Any, Any], weights: Mapping[str, torch.Tensor]) -> list[torch.Tensor] | None:
    held = []
    for name, weight in weights.items():
        tensor = given.get(name)
        if not isinstance(tensor, torch.Tensor) or tensor.shape != weight.shape:
            return None
        held.append(tensor)
    return held


def _is_view(tensor: torch.Tensor, trained: set[int]) -> bool:
    """Whether a tensor shows the memory of a trained parameter, as one of a state dictionary does."""
    base = tensor._base
    return base is not None and id(base) in trained
