"""Short texts of the constant values in a graph."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.graph import Monad, TensorValue, UnreadableValue
from tensight.tensors.elements import dtype_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tensight.graph import Node
    from tensight.sessions.records import Statistics

LONGEST_TEXT = 1024
"""Maximum number of characters of a value."""

_MOST_ATTRIBUTES = 1000
_MOST_ELEMENTS = 64
_MOST_NUMBERS = 16
_LARGEST_EXACT = 2**53
"""Statistics are float64, which cannot represent all integers beyond this."""


def attribute_texts(node: Node) -> dict[str, str]:
    """Return the attributes of an operator as texts."""
    return {name[:LONGEST_TEXT]: value_text(value) for name, value in islice(node.attributes.items(), _MOST_ATTRIBUTES)}


def scalar_text(statistics: Statistics | None) -> str:
    """Return the value of a tensor with a single element, from its statistics, printed as its dtype does.

    Parameters
    ----------
    statistics : Statistics or None

    Returns
    -------
    str
        Empty for a tensor with more elements, and if the value is unknown.
    """
    if statistics is None or statistics.count != 1 or "count" in statistics.unknown:
        return ""
    special = {"nan": statistics.nan_count, "inf": statistics.pos_inf_count, "-inf": statistics.neg_inf_count}
    for text, count in special.items():
        if count:
            return text
    if statistics.max is None:
        return ""
    try:
        dtype = dtype_named(statistics.dtype)
    except TypeError:
        return repr(statistics.max)
    if dtype.kind == "c":
        # Statistics of complex tensors describe magnitudes.
        return ""
    if dtype.kind in "iu" and abs(statistics.max) > _LARGEST_EXACT:
        return repr(statistics.max)
    return str(dtype.type(statistics.max))


def value_text(value: object) -> str:
    """Return a value as text, truncated to `LONGEST_TEXT` characters."""
    pieces: list[str] = []
    room = LONGEST_TEXT
    # Pieces are generated lazily, so a large value is not converted as a whole.
    for piece in _pieces(value):
        pieces.append(piece)
        room -= len(piece)
        if room < 0:
            return f"{''.join(pieces)[: LONGEST_TEXT - 1]}…"
    return "".join(pieces)


def _pieces(value: object) -> Iterator[str]:
    if isinstance(value, TensorValue):
        yield _tensor_text(value)
    elif isinstance(value, Monad):
        yield f"an order of side effects ({value.data_type})"
    elif isinstance(value, UnreadableValue):
        yield f"cannot be shown: {value.reason}"
    elif isinstance(value, str):
        yield value[: LONGEST_TEXT + 1]
    elif isinstance(value, dict):
        yield from _sequence("{", (chain((f"{key}: ",), _pieces(item)) for key, item in value.items()), "}")
    elif isinstance(value, tuple):
        yield from _sequence("(", map(_pieces, value), ")")
    elif isinstance(value, list):
        yield from _sequence("[", map(_pieces, value), "]")
    else:
        # Integers in a graph have 64 bits, so their texts are short.
        yield str(value)


def _sequence(opening: str, elements: Iterable[Iterable[str]], closing: str) -> Iterator[str]:
    yield opening
    for number, element in enumerate(elements):
        if number:
            yield ", "
        if number == _MOST_ELEMENTS:
            yield "…"
            break
        yield from element
    yield closing


def _tensor_text(tensor: TensorValue) -> str:
    described = f"{tensor.dtype or 'tensor'}[{', '.join(map(str, tensor.shape))}]"
    dtype = _dtype(tensor.dtype)
    if dtype is None or not 0 < len(tensor.content) <= _MOST_NUMBERS * dtype.itemsize:
        return described
    if len(tensor.content) % dtype.itemsize:
        return described
    numbers = np.frombuffer(tensor.content, dtype.newbyteorder("<"))
    return f"{described} {', '.join(map(str, numbers.tolist()))}"


def _dtype(name: str) -> np.dtype[Any] | None:
    """Return the dtype of a tensor in a graph; None if it is unknown, or its elements are not whole bytes."""
    if name in ("", "int4"):
        return None
    return dtype_named(name)
