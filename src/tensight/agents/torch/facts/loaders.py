"""What is known of loaders: their batches, their processes, and the random generators that these have copies of."""

from __future__ import annotations

import dis
import random
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from tensight.agents.core.call_stack import is_user_code
from tensight.agents.core.live_instances import live_instances
from tensight.agents.torch.facts.made_lines import made_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GENERATORS = {
    np.random.Generator: "numpy.random.Generator",
    np.random.RandomState: "numpy.random.RandomState",
    random.Random: "random.Random",
    torch.Generator: "torch.Generator",
}
_SEEDED = (np.random.mtrand._rand, random._inst, torch.default_generator)  # type: ignore[attr-defined]
"""Those that PyTorch seeds anew in each process."""

_CALLED = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "forward")
"""Methods that are called in processes of a loader."""

_SEEDS = frozenset(
    (
        *("get_worker_info", "seed", "manual_seed", "initial_seed", "set_state", "setstate", "bit_generator", "spawn"),
        *("default_rng", "RandomState", "SeedSequence", "Random", "Generator"),
    )
)
"""Names in functions that make or seed generators themselves, or know in which process they run."""

_MOST_OBJECTS, _MOST_ITEMS, _DEEPEST = 64, 32, 4


def longest_loader() -> DataLoader[Any] | None:
    """Return the loader of data with the most batches that is alive; None if there is none."""
    return max(live_instances(DataLoader), key=lambda loader: (*batches_of(loader), made_line(loader)), default=None)


def batches_of(loader: DataLoader[Any] | None) -> tuple[int, int]:
    """Return number and size of the batches of a loader; -1 if unknown."""
    try:
        return (-1, -1) if loader is None else (len(loader), int(loader.batch_size or -1))
    except Exception:
        # A stream has no length, and a script's own may fail.
        return -1, -1


def workers_of_streams() -> int:
    """Return the greatest number of processes that read a stream: each reads all of it, unless told."""
    iterators = live_instances(torch.utils.data.dataloader._BaseDataLoaderIter)
    is_stream = torch.utils.data.dataloader._DatasetKind.Iterable
    return max((each._num_workers for each in iterators if each._dataset_kind == is_stream), default=0)


def copied_generators(loader: DataLoader[Any] | None) -> list[dict[str, Any]]:
    """Return the rows of ``generators``: those of which each process of a loader has a copy in the same state.

    Parameters
    ----------
    loader : DataLoader or None
    """
    if loader is None or not loader.num_workers or loader.worker_init_fn is not None:
        return []
    rows: dict[str, dict[str, Any]] = {}
    for holder in _held((loader.dataset, loader.collate_fn)):
        functions = list(_functions(holder))
        names = {name for function in functions for code in _codes(function.__code__) for name in code.co_names}
        if names & _SEEDS:
            # It may give each process, or each sample, numbers of its own.
            return []
        for function in functions:
            for name, generator in _generators(holder, function):
                if is_user_code(function.__code__):
                    rows.setdefault(name, _row(loader, name, generator, function))
    return list(rows.values())


def _row(loader: DataLoader[Any], name: str, generator: object, function: FunctionType) -> dict[str, Any]:
    code = function.__code__
    called = function.__qualname__.rpartition("<locals>.")[2]
    return {
        "name": name,
        "type": next(text for kind, text in _GENERATORS.items() if isinstance(generator, kind)),
        "used_in": f"{called} ({Path(code.co_filename).name}:{code.co_firstlineno})",
        "line": made_line(loader),
        "workers": loader.num_workers,
        "batches": batches_of(loader)[0],
        "is_persistent": bool(loader.persistent_workers),
    }


def _held(roots: tuple[object, ...]) -> Iterator[object]:
    """Yield objects, and those that they hold: data sets within others, transforms, functions."""
    waiting = [(root, 0) for root in roots]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_OBJECTS:
        holder, depth = waiting.pop(0)
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        yield holder
        if depth == _DEEPEST:
            continue
        for value in _attributes(holder).values():
            items = [value]
            if isinstance(value, list | tuple):
                items = list(value[:_MOST_ITEMS])
            elif isinstance(value, dict) and len(value) <= _MOST_ITEMS:
                items = list(value.values())
            waiting += [(item, depth + 1) for item in items if _is_holder(item)]


def _is_holder(value: object) -> bool:
    """Whether an object may hold a generator, or a function that uses one."""
    is_other = isinstance(value, (type, ModuleType, torch.Tensor, np.ndarray, *_GENERATORS))
    return not is_other and type(value).__dictoffset__ != 0


def _attributes(holder: object) -> dict[str, Any]:
    """Return the attributes of an object."""
    try:
        attributes = vars(holder) if type(holder).__dictoffset__ else {}
    except Exception:
        # Those of a script's own class may be a property, which may fail.
        return {}
    return attributes if type(attributes) is dict else {}


def _functions(holder: object) -> Iterator[FunctionType]:
    """Yield the functions of an object that processes of a loader call, and its methods that those call."""
    if isinstance(holder, MethodType):
        holder = holder.__func__
    if isinstance(holder, FunctionType):
        yield holder
        return
    waiting, seen = list(_CALLED), set(_CALLED)
    while waiting:
        method = getattr(type(holder), waiting.pop(), None)
        method = method.fget if isinstance(method, property) else method
        if isinstance(method, FunctionType):
            yield method
            names = {name for code in _codes(method.__code__) for name in code.co_names} - seen
            seen |= names
            waiting += names


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and of those within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _generators(holder: object, function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the random generators that a function uses, by name: of its object, its module, or the one around it."""
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for name in sorted(names | cells.keys()):
        if name in cells:
            value, text = _content(cells[name]), name
        elif name in _attributes(holder):
            value, text = _attributes(holder)[name], f"{type(holder).__name__}.{name}"
        else:
            value, text = function.__globals__.get(name), name
        is_generator = isinstance(value, tuple(_GENERATORS)) and not any(value is each for each in _SEEDED)
        if is_generator and not _is_set(function, name):
            yield text, value


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _is_set(function: Callable[..., Any], name: str) -> bool:
    """Whether a function gives an attribute or a variable another value."""
    instructions = dis.get_instructions(function)
    return any(each.opname.startswith("STORE_") and each.argval == name for each in instructions)
