"""The summary of a training by MindSpore's SummaryCollector: its last loss, and the metrics of its evaluation.

A lineage file has the format of an event file. These fields of an event are read: the lineage of the training (field
6), its algorithm (3), its loss (2); and the lineage of the evaluation (7), its metrics as JSON (2).
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

from tensight.curves.event_files import DamageError, events
from tensight.errors import CurveError
from tensight.graph.protobuf_fields import LENGTH_DELIMITED, ProtobufFormatError, fields

if TYPE_CHECKING:
    import os

ENDING = "_lineage"
LOSS = "loss"
_FIXED32 = 5
_TRAIN, _ALGORITHM, _LOSS = 6, 3, 2
_EVALUATION, _METRICS = 7, 2


def read_lineage(path: str | os.PathLike[str]) -> dict[str, float]:
    """Return the last loss and the last metrics in a lineage file, by name.

    Raises
    ------
    CurveError
        The file cannot be read. A damaged file is read up to the damage.
    """
    values: dict[str, float] = {}
    try:
        with open(path, "rb") as file:
            for event in events(file):
                values |= _values(event)
    except OSError as error:
        raise CurveError(f"{path} cannot be read: {error.strerror or error}") from None
    except (DamageError, ProtobufFormatError):
        """Complete events before the damage count."""
    return values


def _values(event: bytes) -> dict[str, float]:
    values: dict[str, float] = {}
    for training in _parts(event, _TRAIN):
        for algorithm in _parts(training, _ALGORITHM):
            for number, wire_type, content in fields(algorithm):
                if (number, wire_type) == (_LOSS, _FIXED32) and isinstance(content, memoryview):
                    values[LOSS] = struct.unpack("<f", content)[0]
    for evaluation in _parts(event, _EVALUATION):
        for metrics in _parts(evaluation, _METRICS):
            values |= _numbers(bytes(metrics))
    return values


def _parts(message: bytes | memoryview, field_number: int) -> list[memoryview]:
    return [
        content
        for number, wire_type, content in fields(message)
        if number == field_number and wire_type == LENGTH_DELIMITED and isinstance(content, memoryview)
    ]


def _numbers(text: bytes) -> dict[str, float]:
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(data, dict):
        return {}
    return {str(name): float(value) for name, value in data.items() if isinstance(value, int | float)}
