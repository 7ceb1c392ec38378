"""Opens checkpoints of any format: a file, or a folder of shards."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tensight.checkpoints.checkpoint import Checkpoint
from tensight.checkpoints.distributed import METADATA, read_distributed
from tensight.checkpoints.mindspore_files import read_mindspore
from tensight.checkpoints.numpy_files import read_npy, read_npz
from tensight.checkpoints.pytorch_files import read_pytorch
from tensight.checkpoints.safetensors_files import read_safetensors
from tensight.dumps.storage import LocalFile, LocalStorage, OpenFile
from tensight.errors import CheckpointError, DumpError, MissingFileError, Problem

Reader = Callable[[Checkpoint, OpenFile, str], None]

_FORMATS: dict[str, tuple[str, Reader]] = {
    ".safetensors": ("safetensors", read_safetensors),
    ".ckpt": ("MindSpore", read_mindspore),
    ".npz": ("NumPy", read_npz),
    ".npy": ("NumPy", read_npy),
    ".pt": ("PyTorch", read_pytorch),
    ".pth": ("PyTorch", read_pytorch),
    ".bin": ("PyTorch", read_pytorch),
    ".tar": ("PyTorch", read_pytorch),
}
"""Format and reader by file extension."""

_NOT_READ = ("training_args.bin",)
"""Files that Hugging Face's trainer writes beside a model's weights: they contain objects, not data."""

_BESIDE = re.compile(r"(optimizer|scheduler|scaler|rng_state(_\d+)?)\.(pt|pth|bin)")
"""Files that a trainer keeps beside the shards of a model."""

_MAX_INDEX_BYTES = 64 * 2**20
_MAX_FILES = 10_000
_RANK_FOLDER = re.compile(r"rank_?\d+")


def open_checkpoint(path: str) -> Checkpoint:
    """Open a checkpoint for reading; only headers are read.

    Parameters
    ----------
    path : str
        A file (.safetensors, .pt, .pth, .bin, .ckpt, .npz, .npy), an index of shards (``*.index.json``), or a folder:
        of shards, of torch.distributed.checkpoint, or with a single checkpoint.

    Returns
    -------
    Checkpoint
        Close it, or use it in a ``with`` statement.

    Raises
    ------
    CheckpointError
        It is not a checkpoint, is damaged, or contains code.
    DumpError
        There is no such file or folder, or it cannot be opened.
    """
    full = os.path.abspath(os.path.expanduser(path))
    checkpoint = Checkpoint(full, "")
    try:
        if os.path.isdir(full):
            _read_folder(checkpoint, _Folder(checkpoint, full))
        elif full.endswith(".index.json"):
            folder = _Folder(checkpoint, os.path.dirname(full))
            _read_index(checkpoint, folder, os.path.basename(full))
        else:
            file = LocalFile(full)
            checkpoint.opened.append(file)
            _read_file(checkpoint, file, os.path.basename(full))
            checkpoint.files = (os.path.basename(full),)
        if not checkpoint.entries and not checkpoint.values:
            reason = f": {checkpoint.problems[0]}" if checkpoint.problems else ""
            raise CheckpointError(f"{full}: contains no tensor{reason}.")
    except BaseException:
        checkpoint.close()
        raise
    return checkpoint


class _Folder:
    """The files of a checkpoint's folder, opened by name; files outside of it are refused."""

    def __init__(self, checkpoint: Checkpoint, path: str) -> None:
        self.path = path
        self._checkpoint = checkpoint
        root, self._prefix = _root(path)
        self._storage = LocalStorage(root)

    def names(self) -> list[str]:
        """Return the names of all files."""
        listing = self._storage.list_folder(self._prefix)
        self._checkpoint.problems += listing.no_files(self.path, lambda name: Path(name).suffix in _FORMATS)
        return [file.name for file in listing.files]

    def folders(self) -> list[str]:
        """Return the names of all folders."""
        return list(self._storage.folders(self._prefix))

    def open(self, name: str) -> OpenFile:
        """Open a file by its name; it is closed with the checkpoint."""
        if "/" in name or name in ("", ".", ".."):
            raise CheckpointError(f"{self.path}: {name[:200]!r} is not the name of a file in this folder.")
        file = self._storage.open(f"{self._prefix}/{name}" if self._prefix else name)
        self._checkpoint.opened.append(file)
        return file


def _root(path: str) -> tuple[str, str]:
    """Return the folder that links must not leave, and the checkpoint's folder below it.

    In the cache of Hugging Face's hub a snapshot's files are links into the folder ``blobs`` beside the snapshots.
    """
    parts = path.rstrip("/").split("/")
    if len(parts) > 3 and parts[-2] == "snapshots" and os.path.isdir("/".join([*parts[:-2], "blobs"])):
        return "/".join(parts[:-2]), "/".join(parts[-2:])
    return path, ""


def _read_file(checkpoint: Checkpoint, file: OpenFile, name: str) -> None:
    """Read a file by its extension, or by its first bytes if the extension is unknown or MindSpore's."""
    kind = _FORMATS.get(Path(name).suffix)
    head = file.read(0, 8)
    # PyTorch Lightning also writes files of torch.save as .ckpt.
    if kind is None or kind[1] is read_mindspore:
        if head.startswith((b"PK\3\4", b"\x80")):
            kind = _FORMATS[".pt"]
        elif kind is None and head.startswith(b"\x93NUMPY"):
            kind = _FORMATS[".npy"]
        elif kind is None:
            raise CheckpointError(
                f"{file.path}: has no known checkpoint format: {', '.join(sorted(_FORMATS))}, or a folder of them."
            )
    checkpoint.format = checkpoint.format or kind[0]
    kind[1](checkpoint, file, name)


def _read_folder(checkpoint: Checkpoint, folder: _Folder) -> None:
    names = folder.names()
    if METADATA in names:
        checkpoint.format = "PyTorch, distributed"
        read_distributed(checkpoint, folder.open)
        return
    indices = [name for name in names if name.endswith(".index.json")]
    if len(indices) > 1:  # the same weights as safetensors and as PyTorch's files
        indices = [name for name in indices if "safetensors" in name] or indices[:1]
    shards = [name for name in names if Path(name).suffix in _FORMATS and name not in _NOT_READ]
    beside = [name for name in shards if _BESIDE.fullmatch(name)]
    if indices:
        _read_index(checkpoint, folder, indices[0])
    else:
        of_model = [name for name in shards if name.endswith(".safetensors")]
        of_model = of_model or [name for name in shards if name not in beside]
        if not of_model and not beside:
            below = [name for name in folder.folders() if _RANK_FOLDER.fullmatch(name)]
            what = f"; it has folders of ranks ({', '.join(below[:4])}): name one of them" if below else ""
            raise CheckpointError(f"{folder.path}: there is no checkpoint in this folder{what}.")
        _read_shards(checkpoint, folder, of_model, {})
    if beside:
        _read_shards(checkpoint, folder, beside, {}, is_prefixed=True)


def _read_index(checkpoint: Checkpoint, folder: _Folder, name: str) -> None:
    """Read the shards that an index in Hugging Face's format names."""
    file = folder.open(name)
    if file.size_bytes > _MAX_INDEX_BYTES:
        raise CheckpointError(f"{file.path}: {file.size_bytes:,} bytes; an index of shards is not that large.")
    try:
        index = json.loads(file.read(0, file.size_bytes))
        shard_of = index["weight_map"]
        if not isinstance(shard_of, dict) or not all(isinstance(shard, str) for shard in shard_of.values()):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CheckpointError(f"{file.path}: is not an index of shards, or is damaged.") from None
    _read_shards(checkpoint, folder, sorted(set(shard_of.values())), shard_of)
    for key, shard in shard_of.items():
        entry = checkpoint.entries.get(key)
        if entry is None:
            what = f"is not in {shard}, where the index has it"
            checkpoint.problems.append(Problem(key, what, "it counts as missing"))
    for key in checkpoint.entries.keys() - shard_of.keys():
        checkpoint.problems.append(Problem(key, f"is in {checkpoint.entries[key].file}, but not in the index"))


def _read_shards(
    checkpoint: Checkpoint, folder: _Folder, shards: list[str], shard_of: dict[str, str], *, is_prefixed: bool = False
) -> None:
    """Read all shards into one checkpoint; if several have a tensor, the index decides.

    Names are prefixed with the name of the file if `is_prefixed`, and for several files of ``torch.save`` without an
    index: those are not shards, but a model, its optimizer and so on.
    """
    if len(shards) > _MAX_FILES:
        raise CheckpointError(f"{folder.path}: {len(shards):,} shards; at most {_MAX_FILES:,} are read.")
    several = len(shards) > 1 and not shard_of
    for shard in shards:
        try:
            file = folder.open(shard)
        except MissingFileError:
            checkpoint.problems.append(Problem(shard, "this shard is missing", "its tensors count as missing"))
            continue
        except DumpError as error:
            raise CheckpointError(str(error)) from None
        part = Checkpoint(checkpoint.path, "")
        _read_file(part, file, shard)
        checkpoint.format = checkpoint.format or part.format
        checkpoint.problems += part.problems
        prefix = f"{Path(shard).stem}." if is_prefixed or (several and part.format == "PyTorch") else ""
        checkpoint.values |= {prefix + key: value for key, value in part.values.items()}
        for key, entry in part.entries.items():
            name = prefix + key
            other = checkpoint.entries.get(name)
            if other is not None:
                checkpoint.problems.append(Problem(name, f"is in two shards, {other.file} and {shard}"))
                if shard_of.get(name) != shard:
                    continue
            checkpoint.entries[name] = replace(entry, name=name)
    checkpoint.files += tuple(shards)
