"""Files of safetensors: a JSON header, then the elements of all tensors."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

from tensight.checkpoints.checkpoint import Checkpoint, Entry, dtype_named
from tensight.checkpoints.content import FileContent
from tensight.errors import CheckpointError

if TYPE_CHECKING:
    from tensight.dumps.storage import OpenFile

_MAX_HEADER_BYTES = 100_000_000
"""The limit of the format."""

_MAX_TENSORS = 1_000_000
_MAX_DIMENSIONS = 32
_MAX_METADATA_TEXT = 10_000

_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip


def read_safetensors(checkpoint: Checkpoint, file: OpenFile, name: str) -> None:
    """Add the tensors and the metadata of a file to a checkpoint.

    Parameters
    ----------
    checkpoint : Checkpoint
    file : OpenFile
    name : str
        Name of the file within the checkpoint.

    Raises
    ------
    CheckpointError
        The header is too large, damaged, names a tensor twice, or tensors overlap or lie outside of the file.
    """
    length = int.from_bytes(file.read(0, 8), "little")
    if file.size_bytes < 8 or length > file.size_bytes - 8:
        raise CheckpointError(f"{file.path}: is cut off, or not a safetensors file: {file.size_bytes:,} bytes.")
    if length > _MAX_HEADER_BYTES:
        raise CheckpointError(f"{file.path}: a header of {length:,} bytes; the format allows {_MAX_HEADER_BYTES:,}.")
    header = _parsed(file, file.read(8, length))
    metadata = header.pop("__metadata__", {})
    if isinstance(metadata, dict):
        for key, text in metadata.items():
            checkpoint.values[f"__metadata__.{key}"] = str(text)[:_MAX_METADATA_TEXT]
    base = 8 + length
    end = 0
    ordered = sorted((_offsets(file, key, value), key) for key, value in header.items())
    for (begin, stop), key in ordered:
        if begin < end and stop > begin:
            raise CheckpointError(f"{file.path}: {key[:120]!r} overlaps another tensor; the file is refused.")
        if base + stop > file.size_bytes:
            raise CheckpointError(f"{file.path}: {key[:120]!r} lies outside of the file; it is cut off or damaged.")
        end = max(end, stop)
    for key, value in header.items():
        _add(checkpoint, file, name, key, value, base)


def _parsed(file: OpenFile, text: bytes) -> dict[str, Any]:
    """Return the header as a dict; refuse one that would need far more memory than a real header."""
    if text.count(b"{") > _MAX_TENSORS or text.count(b"[") > 2 * _MAX_TENSORS or text.count(b",") > 8 * _MAX_TENSORS:
        raise CheckpointError(f"{file.path}: the header names more than {_MAX_TENSORS:,} tensors; it is not read.")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            raise CheckpointError(f"{file.path}: the header has a name twice; the file is refused.")
        return result

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{file.path}: the header is damaged, or this is not a safetensors file.") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{file.path}: the header is damaged: it is not a dictionary.")
    return header


def _offsets(file: OpenFile, key: str, value: Any) -> tuple[int, int]:
    offsets = value.get("data_offsets") if isinstance(value, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(number) is int for number in offsets):
        raise CheckpointError(f"{file.path}: {key[:120]!r} has no data_offsets; the header is damaged.")
    begin, stop = offsets
    if not 0 <= begin <= stop:
        raise CheckpointError(f"{file.path}: {key[:120]!r} ends before it begins; the header is damaged.")
    return begin, stop


def _add(checkpoint: Checkpoint, file: OpenFile, name: str, key: str, value: dict[str, Any], base: int) -> None:
    begin, stop = _offsets(file, key, value)
    shape, code = value.get("shape"), value.get("dtype")
    is_shape = isinstance(shape, list) and len(shape) <= _MAX_DIMENSIONS
    if not is_shape or not all(type(size) is int and 0 <= size < 2**62 for size in shape or ()):
        raise CheckpointError(f"{file.path}: {key[:120]!r} has no shape; the header is damaged.")
    sizes = tuple(shape or ())
    content = FileContent(file, base + begin, stop - begin)
    dtype = _DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        checkpoint.values[f"{key}.dtype"] = f"{str(code)[:20]} (compared as bytes)"
        checkpoint.entries[key] = Entry(key, dtype_named("uint8"), (stop - begin,), content, name)
        return
    element = dtype_named(dtype)
    if prod(sizes) * element.itemsize != stop - begin:
        raise CheckpointError(
            f"{file.path}: {key[:120]!r} has {stop - begin:,} bytes, its shape needs "
            f"{prod(sizes) * element.itemsize:,}."
        )
    checkpoint.entries[key] = Entry(key, element, sizes, content, name)
