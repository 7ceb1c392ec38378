"""Files of ``torch.save``: the zip format, and the format before PyTorch 1.6."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.checkpoints.checkpoint import Checkpoint, Entry, dtype_named
from tensight.checkpoints.content import Content, FileContent, MemoryContent, StridedContent
from tensight.checkpoints.flattening import flatten
from tensight.checkpoints.pickled_data import MAX_PICKLE_BYTES, PickledArray, read_pickle
from tensight.checkpoints.pickled_names import MAKERS, StoredTensor, storage_of
from tensight.checkpoints.zip_files import STORED, read_directory
from tensight.errors import CheckpointError, Problem

if TYPE_CHECKING:
    from tensight.dumps.storage import OpenFile

_OLD_MAGIC = 0x1950A86A20F9469CFC6C
_OLD_PROTOCOL = 1001
_TAR_MAGIC_AT = 257

StorageAt = Callable[[StoredTensor], "tuple[int, int]"]
"""Returns the range of a tensor's storage in the file: offset and length, bytes."""


def read_pytorch(checkpoint: Checkpoint, file: OpenFile, name: str) -> None:
    """Add the content of a file of ``torch.save`` to a checkpoint.

    Parameters
    ----------
    checkpoint : Checkpoint
    file : OpenFile
    name : str
        Name of the file within the checkpoint.

    Raises
    ------
    CheckpointError
        The file is damaged, or would run code when PyTorch loads it.
    """
    for key, value in read_object(file, name):
        if isinstance(value, Entry):
            checkpoint.entries[key] = value
        elif isinstance(value, Problem):
            checkpoint.problems.append(value)
        else:
            checkpoint.values[key] = value


def read_object(file: OpenFile, name: str, start: int = 0, length: int | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the tensors (`Entry`), scalars and problems of a saved object, with their names.

    Parameters
    ----------
    file : OpenFile
    name : str
        Name of the file within the checkpoint.
    start, length : int
        Range in the file; by default the whole file.
    """
    length = file.size_bytes - start if length is None else length
    head = file.read(start, 512)
    if head.startswith(b"PK"):
        return _read_zip(file, name, start, length)
    if head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        raise CheckpointError(
            f"{file.path}: is in the format of PyTorch before 0.2 (tar), which is not read; "
            "load it with PyTorch, and save it again."
        )
    if not head.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        raise CheckpointError(f"{file.path}: is not a file of torch.save; it is not read.")
    return _read_old(file, name)


def _read_zip(file: OpenFile, name: str, start: int, length: int) -> Iterator[tuple[str, Any]]:
    members = read_directory(file, start, length)
    pickles = [member for member in members if member.endswith("/data.pkl") or member == "data.pkl"]
    if len(pickles) != 1:
        what = "a TorchScript program, which is code" if any(".py" in member for member in members) else "no data.pkl"
        raise CheckpointError(f"{file.path}: contains {what}; it is not read.")
    folder = pickles[0].removesuffix("data.pkl")
    if f"{folder}constants.pkl" in members or any(member.startswith(f"{folder}code/") for member in members):
        raise CheckpointError(f"{file.path}: contains a TorchScript program, which is code; it is refused.")
    for member in members.values():
        if member.method != STORED:
            raise CheckpointError(
                f"{file.path}: {member.name[:80]!r} is compressed, as PyTorch never does; it is refused."
            )
    pickled = members[pickles[0]]
    if pickled.size_bytes > MAX_PICKLE_BYTES:
        raise CheckpointError(f"{file.path}: {pickled.size_bytes:,} bytes of pickled data; it is not read.")
    order = members.get(f"{folder}byteorder")
    is_big = order is not None and order.size_bytes == 3 and file.read(order.offset, 3) == b"big"

    def storage_at(tensor: StoredTensor) -> tuple[int, int]:
        member = members.get(f"{folder}data/{tensor.storage.key}")
        if member is None:
            raise KeyError(tensor.storage.key)
        return member.offset, member.size_bytes

    data = file.read(pickled.offset, pickled.size_bytes)
    root, _ = read_pickle(data, MAKERS, where=file.path, persistent=storage_of)
    del data
    return _entries(root, file, name, storage_at, is_big=is_big)


def _read_old(file: OpenFile, name: str) -> Iterator[tuple[str, Any]]:
    """Read the format before 1.6: five pickles, then each storage's number of elements and bytes."""
    position = 0
    head = file.read(0, 4096)
    parts = []
    for _ in range(3):
        value, used = read_pickle(head[position:], MAKERS, where=file.path)
        parts.append(value)
        position += used
    if parts[:2] != [_OLD_MAGIC, _OLD_PROTOCOL]:
        raise CheckpointError(
            f"{file.path}: is a pickle that torch.save did not write; only data of PyTorch's format is read."
        )
    used_storages: dict[str, int] = {}

    def storage(identity: Any) -> Any:
        result = storage_of(identity)
        used_storages[result.key] = dtype_named(result.dtype).itemsize
        return result

    limit = min(MAX_PICKLE_BYTES, file.size_bytes - position)
    data = file.read(position, limit)
    root, used = read_pickle(data, MAKERS, where=file.path, persistent=storage)
    keys, more = read_pickle(data[used:], MAKERS, where=file.path)
    del data
    position += used + more
    locations = _old_storages(file, keys, position, used_storages)
    is_big = isinstance(parts[2], dict) and parts[2].get("little_endian") is False
    return _entries(root, file, name, lambda tensor: locations[tensor.storage.key], is_big=is_big)


def _old_storages(file: OpenFile, keys: Any, position: int, item_bytes: dict[str, int]) -> dict[str, tuple[int, int]]:
    if not isinstance(keys, list):
        raise CheckpointError(f"{file.path}: the list of its storages is damaged.")
    locations: dict[str, tuple[int, int]] = {}
    for key in keys:
        header = file.read(position, 8)
        if len(header) < 8 or not isinstance(key, str) or key in locations:
            raise CheckpointError(f"{file.path}: is cut off, or the list of its storages is damaged.")
        (count,) = struct.unpack("<q", header)
        size = count * item_bytes.get(key, 1)
        if count < 0 or position + 8 + size > file.size_bytes:
            raise CheckpointError(f"{file.path}: is cut off: storage {key!r} reaches past its end.")
        locations[key] = (position + 8, size)
        position += 8 + size
    return locations


def _entries(root: Any, file: OpenFile, name: str, storage_at: StorageAt, *, is_big: bool) -> Iterator[tuple[str, Any]]:
    for key, value in flatten(root, lambda value: isinstance(value, (StoredTensor, PickledArray)), where=file.path):
        if isinstance(value, PickledArray):
            dtype = np.dtype(value.dtype) if value.dtype else np.dtype(np.uint8)
            yield key, Entry(key, dtype, value.shape if value.dtype else (0,), MemoryContent(value.data), name)
        elif isinstance(value, StoredTensor):
            dtype = dtype_named(value.dtype)
            content = _content(value, dtype.itemsize, file, storage_at)
            if isinstance(content, str):
                yield key, Problem(f"{name}: {key}", content, "the tensor is not compared")
            else:
                yield key, Entry(key, dtype.newbyteorder(">") if is_big else dtype, value.shape, content, name)
        else:
            yield key, value


def _content(tensor: StoredTensor, item_bytes: int, file: OpenFile, storage_at: StorageAt) -> Content | str:
    """Return the content of a tensor, or a description of the problem with it."""
    try:
        begin, length = storage_at(tensor)
    except KeyError:
        return "its storage is missing in the file"
    count = prod(tensor.shape)
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    if count and (last + 1) * item_bytes > length:
        return f"needs {(last + 1) * item_bytes:,} bytes of its storage, which has {length:,}"
    first = begin + tensor.offset * item_bytes
    if not count or _is_contiguous(tensor.shape, tensor.strides):
        return FileContent(file, first, count * item_bytes)
    if not hasattr(file, "map"):
        return "does not lie in one piece, and only a local file can be read then"
    if count > length // item_bytes:
        return f"is a view that repeats its elements, {count:,} of {length // item_bytes:,}"
    return StridedContent(file, first, tensor.shape, tensor.strides, item_bytes)  # type: ignore[arg-type]


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
