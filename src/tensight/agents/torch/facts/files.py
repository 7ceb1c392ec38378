"""What a training reads with `torch.load`, and what of that is there when its first update begins.

Weights are recognised by their names, but for a prefix, and their shapes; whether they are in a model, by samples.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from tensight.agents.core.call_stack import line_of_user
from tensight.agents.core.live_instances import live_instances
from tensight.agents.torch.facts.reading import is_readable, sample
from tensight.agents.torch.inner_modules import held_tensors, inner_modules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

_MOST_FILES, _MOST_TENSORS, _DEEPEST = 8, 4000, 2
_LEAST_SHARE = 0.5
"""Share of the elements of a model from which on a file has its weights, and of the weights that make a load."""

_LEAST_DISTANCE = 0.01
"""Distance of weights, relative to their norm, from which on they are other ones: below it may be rounding."""

_files: list[_File] = []


@dataclass
class _Weights:
    """A dictionary of tensors in a file.

    Attributes
    ----------
    samples : dict of str to (Size, array)
        Shapes, and sampled elements.
    references : dict of int to weak reference
        The tensors, by their identities.
    modules : list of weak reference
        What they were loaded into.
    is_replaced : bool
        Whether other ones were loaded there since.
    """

    samples: dict[str, tuple[torch.Size, NDArray[Any]]]
    references: dict[int, weakref.ref[torch.Tensor]]
    modules: list[weakref.ref[nn.Module]] = field(default_factory=list)
    is_replaced: bool = False


@dataclass
class _File:
    name: str
    line: str
    weights: list[_Weights] = field(default_factory=list)
    optimizer_states: int = 0
    updates: int = -1
    position: int = 0


def note_file(source: Any, content: Any) -> None:
    """Note what `torch.load` has returned.

    Parameters
    ----------
    source : object
        What it was given: a path or a file.
    content : object
        What it has returned.
    """
    if len(_files) >= _MOST_FILES:
        return
    path = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", "")
    name = os.path.basename(os.fspath(path)) if isinstance(path, (str, os.PathLike)) else ""
    file = _File(name or "a file", line_of_user())
    _read(file, content, 0)
    if file.weights:
        _files.append(file)


def _read(file: _File, content: Any, depth: int) -> None:
    if not isinstance(content, dict) or depth > _DEEPEST:
        return
    if "param_groups" in content and isinstance(content.get("state"), dict):
        file.optimizer_states += len(content["state"])
        counts = [state["step"] for state in content["state"].values() if isinstance(state, dict) and "step" in state]
        file.updates = max([file.updates, *(int(count) for count in counts if _is_count(count))])
    elif isinstance(content.get("last_epoch"), int) and "base_lrs" in content:
        file.position = max(file.position, content["last_epoch"])
    elif tensors := {key: value for key, value in content.items() if _is_weight(key, value)}:
        if len(tensors) <= _MOST_TENSORS:
            samples = {key: (value.shape, sample(value)) for key, value in tensors.items()}
            file.weights.append(_Weights(samples, {id(value): weakref.ref(value) for value in tensors.values()}))
    else:
        for inner in content.values():
            _read(file, inner, depth + 1)


def _is_count(value: object) -> bool:
    return isinstance(value, (int, float)) or (
        isinstance(value, torch.Tensor) and is_readable(value) and not value.dim()
    )


def _is_weight(key: object, value: object) -> bool:
    return isinstance(key, str) and isinstance(value, torch.Tensor) and value.is_floating_point() and is_readable(value)


def note_load(module: nn.Module, state: Mapping[str, Any], unexpected: Iterable[str]) -> None:
    """Note that a state was loaded into a module."""
    left_out = set(unexpected)
    given = [value for key, value in state.items() if key not in left_out and isinstance(value, torch.Tensor)]
    if len(given) < _LEAST_SHARE * sum(1 for _ in held_tensors(module, "_parameters")):
        return
    for file in _files:
        for weights in file.weights:
            count = sum(id(value) in weights.references and weights.references[id(value)]() is value for value in given)
            if count >= _LEAST_SHARE * len(weights.samples):
                weights.modules.append(weakref.ref(module))
                weights.is_replaced = False
            elif not count and any(reference() is module for reference in weights.modules):
                weights.is_replaced = True


def take_rows(models: Iterable[nn.Module], optimizers: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the rows of ``files``, and forget them.

    Parameters
    ----------
    models : iterable of Module
        Those that are trained, or called.
    optimizers : iterable of Optimizer
    """
    files = list(_files)
    _files.clear()
    if not files:
        return []
    models = list(models)
    states = sum(len(optimizer.state) for optimizer in optimizers)
    schedules = [vars(each).get("last_epoch", 0) for each in live_instances(torch.optim.lr_scheduler.LRScheduler)]
    rows: list[dict[str, Any]] = []
    for file in files:
        of_training = {
            "file": file.name,
            "line": file.line,
            "optimizer_states": file.optimizer_states,
            "updates": file.updates,
            "optimizer_resumed": states if file.optimizer_states else -1,
            "position": file.position,
            "position_resumed": max(schedules) if file.position and schedules else -1,
        }
        for weights in file.weights:
            row = max(_compared(weights, models), key=lambda each: each["equal"], default=None)
            if row is not None:
                rows.append({"name": f"{file.name} {len(rows) + 1}", **of_training, **row})
    return rows


def _compared(weights: _Weights, models: list[nn.Module]) -> Iterator[dict[str, Any]]:
    """Yield how much of the weights each model has, if these are weights of such a model."""
    for model in models:
        modules = {id(module) for _, module in inner_modules(model)}
        loaded = [module for reference in weights.modules if (module := reference()) is not None]
        if (
            weights.is_replaced
            or any(id(module) not in modules for module in loaded)
            or len(loaded) < len(weights.modules)
        ):
            continue
        held = dict(held_tensors(model, "_parameters"))
        names = _names(weights.samples, held)
        count = sum(tensor.numel() for tensor in held.values())
        if sum(held[name].numel() for name in names.values()) < _LEAST_SHARE * count:
            continue
        pairs = [
            (values.astype(np.float64), sample(held[name]).astype(np.float64))
            for key, name in names.items()
            if is_readable(held[name]) and np.ptp(values := weights.samples[key][1])
        ]
        distances = [_distance(*pair) for pair in pairs]
        if pairs:
            yield {
                "module": type(model).__name__,
                "keys": len(weights.samples),
                "matching": len(pairs),
                "equal": sum(distance < _LEAST_DISTANCE for distance in distances),
                "distance": float(np.median(distances)),
                "is_given": bool(loaded),
            }


def _distance(first: NDArray[Any], second: NDArray[Any]) -> float:
    return float(np.linalg.norm(first - second) / max(float(np.linalg.norm(first)), 1e-30))


def _names(samples: Mapping[str, tuple[torch.Size, Any]], held: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Return the names in a model of tensors of a file, by those in the file, which may have another prefix."""
    missing = [name for name in held if name not in samples]
    renamed = renamed_keys(missing, [key for key in samples if key not in held])
    names = {key: renamed.get(key, key) for key in samples}
    return {key: name for key, name in names.items() if name in held and held[name].shape == samples[key][0]}


def renamed_keys(missing: list[str], unexpected: list[str]) -> dict[str, str]:
    """Return the missing keys of which those that were not expected differ by a prefix, or by one component.

    Parameters
    ----------
    missing, unexpected : list of str
        The keys of a module that were not given, and those given that it does not have.
    """
    ends = {key.split(".", count)[-1]: key for key in missing for count in range(key.count("."))}
    renamed = {}
    for given in unexpected:
        # What is loaded has a prefix more, or lacks one.
        shorter = (given.split(".", count)[-1] for count in range(given.count(".")))
        end = next((each for each in shorter if each in ends and (each == ends[each] or each == given)), None)
        if end is not None:
            renamed[given] = ends[end]
    return renamed or _with_another_component(missing, unexpected)


def _with_another_component(missing: list[str], unexpected: list[str]) -> dict[str, str]:
    """Return the keys of which one component, the same for all, has another name: backbone.x for encoder.x."""
    by_rest: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for key in missing:
        for at, rest in _without_one(key):
            by_rest.setdefault((at, rest), []).append(key)
    renamings: dict[tuple[int, str, str], dict[str, str]] = {}
    for given in unexpected:
        for at, rest in _without_one(given):
            for key in by_rest.get((at, rest), ()):
                pair = given.split(".")[at], key.split(".")[at]
                # Layers of other numbers are other layers.
                if not (pair[0].isdigit() and pair[1].isdigit()):
                    renamings.setdefault((at, *pair), {})[given] = key
    return max(renamings.values(), key=len, default={})


def _without_one(key: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    parts = key.split(".")
    return ((at, (*parts[:at], *parts[at + 1 :])) for at in range(len(parts) - 1)) if len(parts) > 1 else iter(())
