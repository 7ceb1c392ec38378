"""Checkpoints of MindSpore: the message ``Checkpoint`` of its checkpoint.proto, parsed without reading tensors.

::

    message Checkpoint { repeated Value value = 1; }
    message Value { required string tag = 1; oneof value { TensorProto tensor = 2; MapTensorProto maptensor = 3; } }
    message TensorProto { repeated int64 dims = 1; required string tensor_type = 2; required bytes tensor_content = 3; }

A tensor of more than 512 MiB is written as several consecutive values with the same tag, cut along its first
dimension; each has the shape of the whole. The message may be followed by ``crc_num`` and ten bytes.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from tensight.checkpoints.checkpoint import Checkpoint, Entry, dtype_named
from tensight.checkpoints.content import Content, FileContent, JoinedContent
from tensight.errors import CheckpointError, Problem
from tensight.graph.protobuf_fields import LENGTH_DELIMITED, VARINT, ProtobufFormatError, varint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.dumps.storage import OpenFile

_DTYPES = {
    "Int8": "int8", "UInt8": "uint8", "Int16": "int16", "UInt16": "uint16", "Int32": "int32", "UInt32": "uint32",
    "Int64": "int64", "UInt64": "uint64", "Float16": "float16", "Float32": "float32", "Float64": "float64",
    "Bool": "bool", "BFloat16": "bfloat16", "Complex64": "complex64", "Complex128": "complex128",
    "Float8E4M3FN": "float8_e4m3fn", "Float8E5M2": "float8_e5m2",
}  # fmt: skip

_CRC = b"crc_num"
_CRC_BYTES = len(_CRC) + 10
_MAX_TEXT_BYTES = 2**20
_MAX_DIMENSIONS = 32
_MAX_VALUES = 2_000_000
_LONGEST_HEADER = 20
"""Size of a field's number and length, ten bytes each at most."""


class _Field(NamedTuple):
    """A field of a message: its number, the range of its content in the file, and its value if it is a number."""

    number: int
    offset: int
    size: int
    value: int


def read_mindspore(checkpoint: Checkpoint, file: OpenFile, name: str) -> None:
    """Add the content of a file of ``mindspore.save_checkpoint`` to a checkpoint.

    Parameters
    ----------
    checkpoint : Checkpoint
    file : OpenFile
    name : str
        Name of the file within the checkpoint.

    Raises
    ------
    CheckpointError
        The file is truncated, damaged, encrypted or not a checkpoint.
    """
    pieces: dict[str, _Pieces] = {}
    last = ""
    for number, value in enumerate(_fields(file, 0, _end(file))):
        if value.number != 1 or number >= _MAX_VALUES:
            raise CheckpointError(f"{file.path}: is not a checkpoint of MindSpore, or is encrypted or damaged.")
        tag, tensor, is_map = _value(file, value)
        if is_map:
            checkpoint.problems.append(Problem(f"{name}: {tag}", "is a map parameter", "it is not compared"))
            continue
        if tensor is None or not tag:
            raise CheckpointError(f"{file.path}: a value at byte {value.offset:,} has no name or no tensor.")
        if tag in pieces and tag != last:
            raise CheckpointError(f"{file.path}: {tag[:120]!r} occurs twice; the file is refused.")
        pieces.setdefault(tag, _Pieces(tensor.dims, tensor.kind, [])).contents.append(tensor.content)
        last = tag
    if not pieces and file.size_bytes:
        raise CheckpointError(f"{file.path}: contains no tensor; it is not a checkpoint of MindSpore.")
    for tag, parts in pieces.items():
        _add(checkpoint, file, name, tag, parts)


class _Pieces(NamedTuple):
    dims: tuple[int, ...]
    kind: str
    contents: list[FileContent]


class _Tensor(NamedTuple):
    dims: tuple[int, ...]
    kind: str
    content: FileContent


def _add(checkpoint: Checkpoint, file: OpenFile, name: str, tag: str, parts: _Pieces) -> None:
    content: Content = parts.contents[0] if len(parts.contents) == 1 else JoinedContent(tuple(parts.contents))
    if parts.kind == "str":
        if content.size_bytes > _MAX_TEXT_BYTES:
            raise CheckpointError(f"{file.path}: {tag[:120]!r} is a text of {content.size_bytes:,} bytes.")
        data = bytearray(content.size_bytes)
        content.read_into(0, memoryview(data))
        checkpoint.values[tag] = data.decode("utf-32-le", "replace").rstrip("\0")
        return
    dtype = _DTYPES.get(parts.kind)
    if dtype is None:
        checkpoint.values[f"{tag}.dtype"] = f"{parts.kind[:20]} (compared as bytes)"
        checkpoint.entries[tag] = Entry(tag, dtype_named("uint8"), (content.size_bytes,), content, name)
        return
    element = dtype_named(dtype)
    shape = () if parts.dims == (0,) and content.size_bytes == element.itemsize else parts.dims
    if prod(shape) * element.itemsize != content.size_bytes:
        raise CheckpointError(
            f"{file.path}: {tag[:120]!r} has {content.size_bytes:,} bytes, its shape {list(shape)[:8]} needs "
            f"{prod(shape) * element.itemsize:,}; the file is damaged."
        )
    checkpoint.entries[tag] = Entry(tag, element, shape, content, name)


def _end(file: OpenFile) -> int:
    """Return where the message ends: before the checksum, if there is one."""
    tail = file.read(max(0, file.size_bytes - _CRC_BYTES), _CRC_BYTES)
    return file.size_bytes - _CRC_BYTES if tail.startswith(_CRC) else file.size_bytes


def _value(file: OpenFile, value: _Field) -> tuple[str, _Tensor | None, bool]:
    """Return a value's name, its tensor if it has one, and whether it is a map parameter."""
    tag, tensor, is_map = "", None, False
    for field in _fields(file, value.offset, value.offset + value.size):
        if field.number == 1:
            tag = _text(file, field)
        elif field.number == 2:
            tensor = _tensor(file, field)
        elif field.number == 3:
            is_map = True
    return tag, tensor, is_map


def _tensor(file: OpenFile, message: _Field) -> _Tensor:
    dims: list[int] = []
    kind, content = "", FileContent(file, message.offset, 0)
    for field in _fields(file, message.offset, message.offset + message.size):
        if field.number == 1:
            dims += [field.value] if field.value >= 0 else _packed(file, field)
        elif field.number == 2:
            kind = _text(file, field)
        elif field.number == 3:
            content = FileContent(file, field.offset, field.size)
    if len(dims) > _MAX_DIMENSIONS or any(size >= 2**62 for size in dims):
        raise CheckpointError(f"{file.path}: a tensor at byte {message.offset:,} has an invalid shape.")
    return _Tensor(tuple(dims), kind, content)


def _packed(file: OpenFile, field: _Field) -> list[int]:
    data = memoryview(file.read(field.offset, min(field.size, 11 * _MAX_DIMENSIONS)))
    numbers, position = [], 0
    while position < len(data):
        try:
            number, position = varint(data, position, len(data))
        except ProtobufFormatError as error:
            raise CheckpointError(f"{file.path}: a shape at byte {field.offset:,} is damaged: {error}.") from None
        numbers.append(number)
    return numbers


def _text(file: OpenFile, field: _Field) -> str:
    if field.value >= 0 or field.size > _MAX_TEXT_BYTES:
        raise CheckpointError(f"{file.path}: a name at byte {field.offset:,} is damaged.")
    return file.read(field.offset, field.size).decode("utf-8", "replace")


def _fields(file: OpenFile, start: int, end: int) -> Iterator[_Field]:
    """Yield the fields of a message in the file, reading their headers only."""
    position = start
    while position < end:
        head = memoryview(file.read(position, min(_LONGEST_HEADER, end - position)))
        try:
            tag, used = varint(head, 0, len(head))
            if tag & 7 not in (VARINT, LENGTH_DELIMITED):
                raise ProtobufFormatError("a field of another kind")
            number, used = varint(head, used, len(head))
        except ProtobufFormatError:
            raise CheckpointError(
                f"{file.path}: is not a checkpoint of MindSpore, or encrypted or damaged at byte {position:,}."
            ) from None
        position += used
        if tag & 7 == VARINT:
            yield _Field(tag >> 3, position, 0, number)
            continue
        if number > end - position:
            raise CheckpointError(f"{file.path}: is cut off: {number - (end - position):,} bytes are missing.")
        yield _Field(tag >> 3, position, number, -1)
        position += number
