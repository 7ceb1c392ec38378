"""Scalars in event files, as written by TensorBoard and MindSpore's SummaryRecord.

A record consists of its length (8 bytes), a checksum of the length (4), the event, and a checksum of the event (4).
Checksums are CRC-32C, rotated and offset as in the TFRecord format. An event is a protobuf message; these fields are
read: step (field 2), summary (5), and for each value of a summary (1) the tag (1) and the number: TensorBoard's
``simple_value`` (2) or a tensor with one element (8), or MindSpore's ``scalar_value`` (3).
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import numpy as np

from tensight.curves.curve import Point, Series
from tensight.graph.protobuf_fields import LENGTH_DELIMITED, VARINT, ProtobufFormatError, fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

LARGEST_EVENT = 64 << 20
"""Bytes; larger records contain images or graphs."""

LARGEST_SCALARS = 1 << 20
"""Maximum size in bytes of an event whose scalars are read; larger ones are skipped, unchecked."""

LONGEST_TAG = 1000
_HEADER = 12
_FOOTER = 4
_FIXED32 = 5
_STEP, _SUMMARY = 2, 5
_VALUE, _TAG, _SIMPLE_VALUE, _MINDSPORE_SCALAR, _TENSOR = 1, 1, 2, 3, 8
_DTYPE, _SHAPE, _CONTENT, _FLOATS, _DOUBLES = 1, 2, 4, 5, 6
_FLOAT, _DOUBLE = 1, 2
_SIGN, _MODULUS = 1 << 63, 1 << 64


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC = _crc_table()


def masked_crc32c(data: bytes | memoryview) -> int:
    """Return the checksum of a record's part, as the TFRecord format stores it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_event_file(head: bytes) -> bool:
    """Whether a file begins with a record."""
    return len(head) >= _HEADER and masked_crc32c(head[:8]) == int.from_bytes(head[8:_HEADER], "little")


def read_event_file(file: BinaryIO, name: str, series: Series) -> None:
    """Add the scalars of an event file to the series.

    A damaged or growing file is read up to the first incomplete record, with a note.

    Parameters
    ----------
    file : binary file
        The file, opened at its beginning.
    name : str
        Name of the file, for notes.
    series : Series

    Raises
    ------
    CurveError
        There are too many values.
    """
    amount = 0
    try:
        for event in events(file):
            amount += 1
            series.entries += 1
            _add_event(event, series)
    except (DamageError, ProtobufFormatError) as error:
        series.notes.append(f"{name}: {error}; the {amount:,} events before were read")


class DamageError(ValueError):
    """A record is incomplete or damaged."""


def events(file: BinaryIO) -> Iterator[bytes]:
    """Yield the events of a file that may contain scalars; raise `DamageError` where it is damaged."""
    position = 0
    while header := file.read(_HEADER):
        if len(header) < _HEADER:
            raise DamageError(f"it ends within the record at byte {position:,}")
        if masked_crc32c(header[:8]) != int.from_bytes(header[8:], "little"):
            raise DamageError(f"no record begins at byte {position:,}: the checksum is wrong")
        length = int.from_bytes(header[:8], "little")
        if length > LARGEST_EVENT:
            raise DamageError(f"the record at byte {position:,} claims {length:,} bytes")
        rest = file.read(length + _FOOTER)
        if len(rest) < length + _FOOTER:
            raise DamageError(f"it ends within the record at byte {position:,}")
        event = rest[:length]
        position += _HEADER + len(rest)
        if length > LARGEST_SCALARS:
            continue
        if masked_crc32c(event) != int.from_bytes(rest[length:], "little"):
            raise DamageError(f"the checksum of the record before byte {position:,} is wrong")
        yield event


def _add_event(event: bytes, series: Series) -> None:
    step, summaries = 0, []
    for number, wire_type, content in fields(event):
        if number == _STEP and wire_type == VARINT and isinstance(content, int):
            step = content % _MODULUS
        elif number == _SUMMARY and wire_type == LENGTH_DELIMITED and isinstance(content, memoryview):
            summaries.append(content)
    step = step - _MODULUS if step >= _SIGN else step
    for summary in summaries:
        for number, wire_type, content in fields(summary):
            if number == _VALUE and wire_type == LENGTH_DELIMITED and isinstance(content, memoryview):
                _add_value(content, step, series)


def _add_value(value: memoryview, step: int, series: Series) -> None:
    tag, scalar = "", None
    for number, wire_type, content in fields(value):
        if isinstance(content, int):
            continue
        if number == _TAG and wire_type == LENGTH_DELIMITED:
            tag = bytes(content[:LONGEST_TAG]).decode("utf-8", "replace")
        elif number in (_SIMPLE_VALUE, _MINDSPORE_SCALAR) and wire_type == _FIXED32:
            scalar = struct.unpack("<f", content)[0]
        elif number == _TENSOR and wire_type == LENGTH_DELIMITED:
            scalar = _tensor_scalar(content)
    # MindSpore appends the kind of a value to its tag.
    name = tag.removesuffix("/scalar").removesuffix("[:Scalar]")
    if name and scalar is not None:
        series.add(name, Point(step, scalar, entry=series.entries))


def _tensor_scalar(tensor: memoryview) -> float | None:
    """Return the number of a tensor with one element; None if it has more, or a different type."""
    dtype, elements = 0, 1
    raw: memoryview | None = None
    for number, _, content in fields(tensor):
        if number == _DTYPE and isinstance(content, int):
            dtype = content
        elif number == _SHAPE and isinstance(content, memoryview):
            elements = _elements(content)
        elif number in (_CONTENT, _FLOATS, _DOUBLES) and isinstance(content, memoryview):
            raw = content
    size = {_FLOAT: 4, _DOUBLE: 8}.get(dtype)
    if raw is None or elements != 1 or size is None or len(raw) != size:
        return None
    return float(np.frombuffer(raw, "<f4" if size == 4 else "<f8")[0])


def _elements(shape: memoryview) -> int:
    """Return the product of a shape's dimensions (field 2, whose field 1 is the size)."""
    sizes = [0 if number == 2 else 1 for number, _, _ in fields(shape)]
    for index, (number, _, dimension) in enumerate(fields(shape)):
        if number == 2 and isinstance(dimension, memoryview):
            sizes[index] = next((size for at, _, size in fields(dimension) if at == 1 and isinstance(size, int)), 0)
    return math.prod(sizes)
