"""Anomalies that a constant rules out by its value in the graph, without a dump of it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tensight.analysis.anomalies import Anomaly
from tensight.graph import Monad, TensorValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.graph import Node

_PRINTED = re.compile(r"Tensor\(shape=\[[-0-9, ]*\], dtype=(?P<dtype>\w+), value=(?P<numbers>.*)\)", re.DOTALL)
"""A tensor as MindSpore prints it; the middle of large tensors is elided."""

_LEFT_OUT = "..."
_WHOLE_NUMBERS = ("bool", "int", "uint")
_FLOATS = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float32": np.float32,
    "float64": np.float64,
}


def is_clean(node: Node, anomaly: Anomaly, explosion_limit: float) -> bool:
    """Return whether the graph contains the value of a constant and the value does not show an anomaly.

    Parameters
    ----------
    node : Node
    anomaly : Anomaly
    explosion_limit : float
        Finite values whose magnitude is above this count as an explosion.
    """
    if not (node.is_constant and node.raw_value):
        return False
    numbers = _floats(node.value)
    return numbers is not None and not any(_shows(anomaly, numbers, explosion_limit))


def _shows(anomaly: Anomaly, numbers: Iterable[float], limit: float) -> Iterable[bool]:
    for number in numbers:
        if anomaly is Anomaly.NAN:
            yield math.isnan(number)
        elif anomaly is Anomaly.INF:
            yield math.isinf(number)
        elif anomaly is Anomaly.OVERFLOW:
            yield not math.isfinite(number)
        elif anomaly is Anomaly.EXPLOSION:
            yield abs(number) > limit
        else:
            # A single zero can make all other values zero.
            yield number == 0


def _floats(value: object) -> list[float] | None:
    """Return all floating-point numbers in a value; None if some are unknown."""
    if isinstance(value, float):
        return [value]
    if isinstance(value, str):
        return _printed(value)
    if isinstance(value, TensorValue):
        return _tensor(value)
    if isinstance(value, (tuple, list)):
        parts = [_floats(element) for element in value]
        return None if None in parts else [number for numbers in parts for number in numbers or ()]
    return [] if value is None or isinstance(value, (bool, int, Monad)) else None


def _printed(text: str) -> list[float] | None:
    match = _PRINTED.fullmatch(text)
    if match is None or match["dtype"].lower().startswith(_WHOLE_NUMBERS):
        return []
    if _LEFT_OUT in match["numbers"]:
        return None
    try:
        return [float(number) for number in re.split(r"[\s,\[\]]+", match["numbers"]) if number]
    except ValueError:
        return None


def _tensor(tensor: TensorValue) -> list[float] | None:
    if tensor.dtype.startswith(_WHOLE_NUMBERS):
        return []
    dtype: np.dtype[Any] = np.dtype(_FLOATS.get(tensor.dtype, np.void))
    if not tensor.content or not dtype.itemsize or len(tensor.content) % dtype.itemsize:
        return None
    numbers: list[float] = np.frombuffer(tensor.content, dtype.newbyteorder("<")).astype(np.float64).tolist()
    return numbers
