"""Nested data of a checkpoint, flattened: tensors by name, and everything else as scalars."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from tensight.checkpoints.pickled_data import Named, Record
from tensight.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensight.checkpoints.checkpoint import Scalar

_MAX_VALUES = 500_000
_MAX_DEPTH = 64
_LONGEST_TEXT = 1000
_MOST_NUMBERS = 64
"""Longer lists of plain numbers (generator states, sampler indices) are replaced by their length and a checksum."""


def flatten(root: Any, is_tensor: Callable[[Any], bool], *, where: str) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and scalars in nested dictionaries, lists and records, with their names.

    Parameters
    ----------
    root : object
        As returned by `read_pickle`.
    is_tensor : callable
        Returns whether an object is a tensor, which is yielded as it is.
    where : str
        The file name, for messages.

    Yields
    ------
    tuple of str and object
        The keys that lead to it, joined by dots; a tensor, or a `Scalar`.

    Raises
    ------
    CheckpointError
        The data is too large, or nested too deeply.
    """
    waiting: list[tuple[str, int, Any]] = [("", 0, root)]
    digests: dict[int, list[tuple[Any, Any]] | None] = {}
    seen = 0
    while waiting:
        name, depth, value = waiting.pop()
        if is_tensor(value):
            yield name or "tensor", value
            continue
        if not isinstance(value, (dict, list, tuple, Record)):
            yield name or "value", _scalar(value)
            continue
        if id(value) not in digests:
            digests[id(value)] = _digest(value)
        inner = digests[id(value)]
        if inner is None:
            seen += _length(value)
            if seen > _MAX_VALUES:
                raise CheckpointError(f"{where}: more than {_MAX_VALUES:,} values; it is refused.")
            inner = _inner(value)
        if depth >= _MAX_DEPTH:
            raise CheckpointError(f"{where}: data nested more than {_MAX_DEPTH} deep ({name[:120]}…); it is refused.")
        prefix = f"{name}." if name else ""
        waiting.extend((f"{prefix}{_key(key)}", depth + 1, item) for key, item in reversed(inner))


def _length(value: Any) -> int:
    """Return the number of elements of a container, one for an empty container."""
    if isinstance(value, Record):
        return 1 + len(value.arguments) + (len(value.state) if isinstance(value.state, dict) else 1)
    return max(1, len(value))


def _digest(value: Any) -> list[tuple[Any, Any]] | None:
    """Return length and checksum of a long list of plain numbers; None for anything else."""
    if not isinstance(value, (list, tuple)) or len(value) <= _MOST_NUMBERS:
        return None
    if not all(isinstance(item, (int, float)) for item in value):
        return None
    return [("length", len(value)), ("checksum", f"{zlib.crc32(repr(value).encode()):08x}")]


def _inner(value: Any) -> list[tuple[Any, Any]]:
    """Return the content of a container by key."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, Record):
        inner: list[tuple[Any, Any]] = list(enumerate(value.arguments))
        if isinstance(value.state, dict):
            inner += value.state.items()
        elif value.state is not None:
            inner.append(("state", value.state))
        return inner
    return list(enumerate(value))


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
