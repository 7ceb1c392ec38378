"""Values that are written into a graph, as short texts for a person."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import ml_dtypes
import numpy as np

from tensight.graph import Monad, TensorValue, UnreadableValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.graph import Node

_Item = TypeVar("_Item")

LONGEST_TEXT = 1024
"""Characters of a value."""

_MOST_ATTRIBUTES = 1000
_MOST_ELEMENTS = 64
_MOST_NUMBERS = 16


def attribute_texts(node: Node) -> dict[str, str]:
    """Return the attributes of an operator as texts."""
    return {name[:LONGEST_TEXT]: value_text(value) for name, value in islice(node.attributes.items(), _MOST_ATTRIBUTES)}


def value_text(value: object) -> str:
    """Return a value as a text that says what it is, however large it is."""
    text = _text(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def _text(value: object) -> str:
    if isinstance(value, TensorValue):
        return _tensor_text(value)
    if isinstance(value, Monad):
        return f"an order of side effects ({value.data_type})"
    if isinstance(value, UnreadableValue):
        return f"cannot be shown: {value.reason}"
    if isinstance(value, str):
        return value[: LONGEST_TEXT + 1]
    if isinstance(value, dict):
        return f"{{{_joined(f'{key[:LONGEST_TEXT]}: {_text(item)}' for key, item in _few(value.items()))}}}"
    if isinstance(value, tuple):
        return f"({_joined(map(_text, _few(value)))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{_joined(map(_text, _few(value)))}]"
    # Integers of a graph have 64 bits, so none of them is too long for a text.
    return str(value)


def _few(values: Iterable[_Item]) -> Iterable[_Item]:
    return islice(values, _MOST_ELEMENTS + 1)


def _joined(texts: Iterable[str]) -> str:
    """Join texts up to the longest one that is shown; the rest is only hinted at."""
    joined: list[str] = []
    length = 0
    for number, text in enumerate(texts):
        if number == _MOST_ELEMENTS or length > LONGEST_TEXT:
            joined.append("…")
            break
        joined.append(text)
        length += len(text)
    return ", ".join(joined)


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
    """Return the dtype of the elements of a tensor in a graph; None where they are no whole bytes, or unknown."""
    if name in ("", "int4"):
        return None
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    return dtype
