"""The outermost level of a protobuf message, without copies of its contents."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, _FIXED64, LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class ProtobufFormatError(ValueError):
    """The bytes are not a protobuf message."""


def length_delimited_fields(data: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the fields of a message that contain bytes, text or messages; skip others.

    Parameters
    ----------
    data : bytes or memoryview
        A serialized message.

    Yields
    ------
    tuple of int and memoryview
        The field's number, and its content as a view of `data`.

    Raises
    ------
    ProtobufFormatError
        A field is malformed or exceeds the message.
    """
    for number, wire_type, value in fields(data):
        if wire_type == LENGTH_DELIMITED and not isinstance(value, int):
            yield number, value


def fields(data: bytes | memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield all fields of a message.

    Parameters
    ----------
    data : bytes or memoryview
        A serialized message.

    Yields
    ------
    tuple of int, int, and int or memoryview
        The field's number, its wire type, and its value: an unsigned integer for `VARINT`, otherwise a view of `data`.

    Raises
    ------
    ProtobufFormatError
        A field is malformed or exceeds the message.
    """
    view = memoryview(data).cast("B")
    position, end = 0, len(view)
    while position < end:
        start = position
        tag, position = varint(view, position, end)
        wire_type = tag & 7
        if wire_type == VARINT:
            value, position = varint(view, position, end)
            yield tag >> 3, wire_type, value
            continue
        if wire_type == LENGTH_DELIMITED:
            length, position = varint(view, position, end)
        elif wire_type == _FIXED64:
            length = 8
        elif wire_type == _FIXED32:
            length = 4
        else:
            raise ProtobufFormatError(f"byte {start} does not begin a field")
        if length > end - position:
            raise ProtobufFormatError(f"the field at byte {start} needs {length - (end - position)} bytes more")
        yield tag >> 3, wire_type, view[position : position + length]
        position += length


def varint(view: memoryview, position: int, end: int) -> tuple[int, int]:
    """Read a variable-length number; return it and the position of its end."""
    if position < end and view[position] < 0x80:
        # As most are: tags, and lengths of names.
        return view[position], position + 1
    value = 0
    for index, byte in enumerate(view[position : min(end, position + _LONGEST_VARINT)]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ProtobufFormatError(f"byte {position} does not begin a number, or the file ends in it")


def length_delimited(number: int, content: bytes) -> bytes:
    """Return a serialized field with bytes, text or a message."""
    return _varint_bytes(number << 3 | LENGTH_DELIMITED) + _varint_bytes(len(content)) + content


@lru_cache(maxsize=4096)
def _varint_bytes(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
