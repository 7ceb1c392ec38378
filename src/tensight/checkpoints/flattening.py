"""Nested data of a checkpoint taken apart: tensors by their names, and everything else as scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.checkpoints.pickled_data import Named, Record
from tensight.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensight.checkpoints.checkpoint import Scalar

_MAX_LEAVES = 2_000_000
_MAX_DEPTH = 64
_LONGEST_TEXT = 1000
_MOST_NUMBERS = 1000
"""Longer lists of plain numbers (indices of a sampler, a loss for each step) are said by their length and ends."""


def flatten(root: Any, is_tensor: Callable[[Any], bool], *, where: str) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and scalars in nested dictionaries, lists and records, with their names.

    Parameters
    ----------
    root : object
        As `read_pickle` returns it.
    is_tensor : callable
        Tells what is yielded as it is.
    where : str
        For messages: the file.

    Yields
    ------
    tuple of str and object
        The keys that lead to it, joined by dots; a tensor, or a `Scalar`.

    Raises
    ------
    CheckpointError
        The data is nested too deeply, or there is too much of it.
    """
    waiting: list[tuple[str, int, Any]] = [("", 0, root)]
    for _ in range(_MAX_LEAVES):
        if not waiting:
            return
        name, depth, value = waiting.pop()
        if is_tensor(value):
            yield name or "tensor", value
            continue
        inner = _inner(value)
        if inner is None:
            yield name or "value", _scalar(value)
        elif depth >= _MAX_DEPTH:
            raise CheckpointError(f"{where}: data nested more than {_MAX_DEPTH} deep ({name[:120]}…); it is refused.")
        else:
            prefix = f"{name}." if name else ""
            waiting.extend((f"{prefix}{_key(key)}", depth + 1, item) for key, item in reversed(inner))
    raise CheckpointError(f"{where}: more than {_MAX_LEAVES:,} values; it is refused.")


def _inner(value: Any) -> list[tuple[Any, Any]] | None:
    """Return what is in a container by its keys, None if it is none."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, Record):
        inner: list[tuple[Any, Any]] = list(enumerate(value.arguments))
        if isinstance(value.state, dict):
            inner += value.state.items()
        elif value.state is not None:
            inner.append(("state", value.state))
        return inner
    if isinstance(value, (list, tuple)):
        if len(value) > _MOST_NUMBERS and all(isinstance(item, (int, float, bool)) for item in value):
            return [("length", len(value)), ("first", value[0]), ("last", value[-1])]
        return list(enumerate(value))
    return None


def _key(key: Any) -> str:
    if isinstance(key, tuple):
        return ",".join(map(str, key))[:_LONGEST_TEXT]
    if isinstance(key, Record):
        return key.kind
    return str(key)[:_LONGEST_TEXT]


def _scalar(value: Any) -> Scalar:
    if isinstance(value, Named):
        return f"{value.module}.{value.name}"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes" if len(value) > 64 else repr(value)
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(_key(item)[:80] for item in list(value)[:100])) + "}"
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[:_LONGEST_TEXT] + "…"
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    return type(value).__name__
