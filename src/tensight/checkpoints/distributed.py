"""Folders of torch.distributed.checkpoint: ``.metadata``, and one or several ``.distcp`` files for each rank."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from tensight.checkpoints.checkpoint import Checkpoint, Entry, dtype_named
from tensight.checkpoints.content import Box, BoxesContent, Content
from tensight.checkpoints.pickled_data import MAX_PICKLE_BYTES, Named, Record, plain_shape, read_pickle
from tensight.checkpoints.pickled_names import DISTRIBUTED_MAKERS, DTYPES
from tensight.checkpoints.pytorch_files import read_object
from tensight.errors import CheckpointError, Problem, TensightError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.dumps.storage import OpenFile

METADATA = ".metadata"

_MOST_COMPARED_BOXES = 2_000
"""With more boxes in a tensor, only their total size is checked, not whether any two overlap."""

Opener = "Callable[[str], OpenFile]"


def read_distributed(checkpoint: Checkpoint, open_file: Callable[[str], OpenFile]) -> None:
    """Add the content of a folder of torch.distributed.checkpoint to a checkpoint.

    Parameters
    ----------
    checkpoint : Checkpoint
    open_file : callable
        Opens a file of the folder by its name.

    Raises
    ------
    CheckpointError
        The metadata is damaged, or contains more than data.
    """
    _Reader(checkpoint, open_file).read()


class _Reader:
    """Reads a folder, and keeps each of its files open once."""

    def __init__(self, checkpoint: Checkpoint, open_file: Callable[[str], OpenFile]) -> None:
        self._checkpoint, self._open = checkpoint, open_file
        self._files: dict[str, OpenFile | None] = {}

    def read(self) -> None:
        """Read the metadata, and the header of each part that it names."""
        file = self._open(METADATA)
        if file.size_bytes > MAX_PICKLE_BYTES:
            raise CheckpointError(f"{file.path}: {file.size_bytes:,} bytes; it is not read.")
        metadata, _ = read_pickle(file.read(0, file.size_bytes), DISTRIBUTED_MAKERS, where=file.path)
        tensors = metadata.attribute("state_dict_metadata") if isinstance(metadata, Record) else None
        storage = metadata.attribute("storage_data") if isinstance(metadata, Record) else None
        if not isinstance(tensors, dict) or not isinstance(storage, dict):
            raise CheckpointError(f"{file.path}: is not metadata of torch.distributed.checkpoint.")
        parts = _parts(storage)
        for name, described in tensors.items():
            if not isinstance(name, str) or not isinstance(described, Record):
                raise CheckpointError(f"{file.path}: the metadata is damaged.")
            if described.kind == "TensorStorageMetadata":
                self._add_tensor(name, described, parts)
            else:
                self._add_object(name, parts.get((name, None)))
        self._checkpoint.files = tuple(sorted(name for name, opened in self._files.items() if opened is not None))

    def _problem(self, where: str, what: str) -> None:
        self._checkpoint.problems.append(Problem(where, what, "the tensor is not compared"))

    def _add_tensor(self, name: str, described: Record, parts: dict[Any, Record]) -> None:
        dtype = _dtype(described)
        try:
            shape = plain_shape(described.attribute("size"))
        except TypeError:
            dtype = None
            shape = ()
        chunks = described.attribute("chunks")
        if dtype is None or not isinstance(chunks, list):
            self._problem(name, "its metadata is damaged, or its dtype is unknown")
            return
        boxes = []
        for chunk in chunks:
            box = self._box(name, chunk, shape, dtype, parts)
            if isinstance(box, str):
                self._problem(name, box)
                return
            boxes.append(box)
        wrong = _not_covered(shape, boxes)
        if wrong:
            self._problem(name, wrong)
            return
        element = dtype_named(dtype)
        content: Content = BoxesContent(shape, element.itemsize, tuple(boxes))
        if len(boxes) == 1:
            content = boxes[0].content
        file = min((stretch[2] for box in boxes for stretch in box.content.stretches()), default="")
        self._checkpoint.entries[name] = Entry(name, element, shape, content, file.rpartition("/")[2])

    def _box(self, name: str, chunk: Any, shape: tuple[int, ...], dtype: str, parts: dict[Any, Record]) -> Box | str:
        """Return a chunk of a tensor, or a description of the problem with it."""
        try:
            offsets, sizes = plain_shape(chunk.attribute("offsets")), plain_shape(chunk.attribute("sizes"))
        except (TypeError, AttributeError):
            return "its metadata is damaged"
        if not len(offsets) == len(sizes) == len(shape):
            return "a shard of it has a different number of dimensions"
        if any(o + s > size for o, s, size in zip(offsets, sizes, shape, strict=True)):
            return f"a shard at {list(offsets)} reaches beyond its shape"
        part = parts.get((name, offsets))
        if part is None:
            return f"the shard at {list(offsets)} is in no file"
        saved = self._saved(part)
        if isinstance(saved, str):
            return f"the shard at {list(offsets)}: {saved}"
        entry = next((value for _, value in saved if isinstance(value, Entry)), None)
        if entry is None or entry.shape != sizes or entry.dtype.name != dtype:
            what = "no tensor" if entry is None else f"{entry.dtype.name} {list(entry.shape)}"
            return f"the shard at {list(offsets)} should be {dtype} {list(sizes)}, its file has {what}"
        return Box(offsets, sizes, entry.content)

    def _add_object(self, name: str, part: Record | None) -> None:
        saved = self._saved(part) if part is not None else "it is in no file"
        if isinstance(saved, str):
            self._problem(name, saved)
            return
        for key, value in saved:
            full = name if key in ("value", "tensor") else f"{name}.{key}"
            if isinstance(value, Entry):
                self._checkpoint.entries[full] = Entry(full, value.dtype, value.shape, value.content, value.file)
            elif isinstance(value, Problem):
                self._checkpoint.problems.append(value)
            else:
                self._checkpoint.values[full] = value

    def _saved(self, part: Record) -> list[tuple[str, Any]] | str:
        """Return what ``torch.save`` saved in a part of a file, or a description of the problem with it."""
        path, offset, length = (part.attribute(name) for name in ("relative_path", "offset", "length"))
        if not isinstance(path, str) or type(offset) is not int or type(length) is not int or min(offset, length) < 0:
            return "where it lies is damaged"
        if part.attribute("transform_descriptors"):
            return "it is compressed, which is not read"
        file = self._file(path)
        if file is None:
            return f"its file {path[:120]!r} is missing, or not a file of the folder"
        if offset + length > file.size_bytes:
            return f"its file {path[:120]!r} is cut off: {offset + length:,} bytes needed, {file.size_bytes:,} found"
        return list(read_object(file, path, offset, length))

    def _file(self, path: str) -> OpenFile | None:
        if path not in self._files:
            try:
                self._files[path] = self._open(path)
            except TensightError:
                self._files[path] = None
        return self._files[path]


def _parts(storage: dict[Any, Any]) -> dict[Any, Record]:
    """Return the location of each part by its name and offsets; offsets are None for parts that are not tensors."""
    parts: dict[Any, Record] = {}
    for index, info in storage.items():
        if isinstance(index, Record) and isinstance(info, Record):
            name, offset = index.attribute("fqn"), index.attribute("offset")
            if isinstance(name, str) and (offset is None or isinstance(offset, tuple)):
                parts[name, offset] = info
    return parts


def _dtype(described: Record) -> str | None:
    properties = described.attribute("properties")
    state = properties.state if isinstance(properties, Record) else None
    dtype = state[0] if isinstance(state, tuple) and state else properties and properties.attribute("dtype")
    return DTYPES.get(dtype.name) if isinstance(dtype, Named) else None


def _not_covered(shape: tuple[int, ...], boxes: list[Box]) -> str:
    """Return why boxes do not cover a tensor, "" if they do."""
    boxes = [box for box in boxes if prod(box.sizes)]
    if len(boxes) <= _MOST_COMPARED_BOXES:
        ordered = sorted(boxes, key=lambda box: box.offsets)
        for index, box in enumerate(ordered):
            for other in ordered[index + 1 :]:
                if not shape or other.offsets[0] >= box.offsets[0] + box.sizes[0]:
                    break
                if box.overlaps(other):
                    return f"its shards at {list(box.offsets)} and {list(other.offsets)} overlap"
    have = sum(prod(box.sizes) for box in boxes)
    if have != prod(shape):
        return f"its shards have {have:,} of its {prod(shape):,} elements: one is missing"
    return ""
