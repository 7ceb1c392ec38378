"""Convert an asynchronous Ascend dump into npy files, without the vendor's toolkit.

`convert_dump` writes a complete new dump and does not change the source. `convert_in_place` works like
``convert_all_data_to_host`` of MindInsight: it writes the npy files beside the binary ones.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import numpy as np

from tensight.dumps.ascend import (
    AscendSlot,
    DumpDataFile,
    read_dump_data,
    read_slot_segments,
)
from tensight.dumps.ascend_names import UNKNOWN_STREAM, AscendName, parse_ascend_name
from tensight.dumps.layouts import LocatedDump, find_dump
from tensight.dumps.names import original_name, parse_mapping, parse_name
from tensight.dumps.overflow import MAX_RECORD_BYTES, parse_overflow
from tensight.dumps.rank_index import MINDSPORE
from tensight.dumps.storage import LocalStorage, OpenFile, Storage
from tensight.errors import DumpError, InputError, Problem, TensorFileError

if TYPE_CHECKING:
    from collections.abc import Iterable

Progress = Callable[[int, int], None]
"""Called with the number of folders done and their total."""

SUMMARY = "convert_failed_files_summary.txt"
MAPPING = "mapping.csv"

_SEGMENT_ELEMENTS = 2**20
_COPY_BYTES = 4 * 2**20
_MAX_NAME_BYTES = 255
_MAX_DEPTH = 12


@dataclass(frozen=True, slots=True)
class ConversionFailure:
    """Something that could not be converted or copied.

    Attributes
    ----------
    path : str
        Full path of the source file or folder.
    tensors : tuple of str
        "input:0" and the like; empty if the file as a whole failed.
    reason : str
    """

    path: str
    tensors: tuple[str, ...]
    reason: str

    @property
    def line(self) -> str:
        """The failure in the format of MindInsight: the file and its tensors, joined by commas."""
        return ",".join((self.path, *self.tensors))

    def __str__(self) -> str:
        """Return one line with the reason."""
        return f"{self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """The result of a conversion.

    Attributes
    ----------
    written : int
        Number of converted tensors.
    copied : int
        Number of tensors that were copied because they already were npy files.
    failures : tuple of ConversionFailure
        Files and tensors that are missing in the converted dump.
    """

    written: int
    copied: int
    failures: tuple[ConversionFailure, ...]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The failures as problems."""
        return tuple(
            Problem(failure.line, failure.reason, "it is missing in the converted dump") for failure in self.failures
        )


class HasPath(Protocol):
    """An open dump."""

    path: str


@dataclass(slots=True)
class _Folder:
    """One folder of a dump, with its files by kind.

    Attributes
    ----------
    path : str
        Relative to the storage's root.
    operators : dict of str to AscendName
        Files with the tensors of an operator, and their names before ``mapping.csv``.
    overflows : dict of str to str
        Overflow files in their binary form, likewise.
    others : list of str
    mapping : dict of str to str
    """

    path: str
    operators: dict[str, AscendName] = field(default_factory=dict)
    overflows: dict[str, str] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    mapping: dict[str, str] = field(default_factory=dict)
    executions: set[tuple[str, int, int, int]] = field(default_factory=set)

    def add(self, filename: str) -> None:
        """Add a file to its kind."""
        whole_name = original_name(filename, self.mapping)
        name = parse_ascend_name(whole_name)
        if name is None:
            self.others.append(filename)
        elif name.is_overflow:
            self.overflows[filename] = whole_name
        else:
            self.operators[filename] = name
            self.executions.add((name.op_type, name.task_id, _stream(name), name.timestamp))

    def comes_from_binary(self, filename: str) -> bool:
        """Return whether a file is the result of an earlier conversion of one of the binary files."""
        if filename.endswith(".json"):
            return filename.rpartition(".output.")[0] in self.overflows.values()
        name = parse_name(original_name(filename, self.mapping)) if filename.endswith(".npy") else None
        return name is not None and (name.op_type, name.task_id, name.stream_id, name.timestamp) in self.executions


def _stream(name: AscendName) -> int:
    """Return the stream for a tensor's file name, which requires one."""
    return 0 if name.stream_id == UNKNOWN_STREAM else name.stream_id


def convert_dump(
    source: str | os.PathLike[str] | HasPath, out_dir: str | os.PathLike[str], *, progress: Progress | None = None
) -> ConversionReport:
    """Write a dump in which every tensor is an npy file in the layout of the host.

    Each input and output of an operator becomes ``{op_type}.{op_name}.{task}.{stream}.{timestamp}.{io}.{slot}.{format}
    .npy`` (bfloat16 and 8-bit floats as float32, as MindSpore stores them; layouts without a decoder unchanged, under
    their own format); each overflow record becomes its JSON form; everything else is copied. The source is not changed.

    Parameters
    ----------
    source : str, path-like or Dump
        The dump, or its path as for `open_dump`.
    out_dir : str or path-like
        A folder that does not exist yet or is empty, outside the source.
    progress : callable, optional
        Called with the number of folders done and their total.

    Returns
    -------
    ConversionReport
        Numbers of converted and copied tensors, and what is missing in ``out_dir``.

    Raises
    ------
    DumpError
        If ``source`` is not a dump, or ``out_dir`` cannot be written.
    InputError
        If ``out_dir`` is not empty or is inside the source, or ``source`` is not in MindSpore's layout.
    """
    dump = _dump_to_convert(source if isinstance(source, (str, os.PathLike)) else source.path)
    out = os.path.realpath(os.fspath(out_dir))
    _check_target(dump.storage, out)
    failures: list[ConversionFailure] = []
    written = copied = 0
    folders = [(rank, folder) for rank in dump.ranks for folder in _walk(dump.storage, rank.path, failures)]
    for done, (rank, folder) in enumerate(folders):
        if progress is not None:
            progress(done, len(folders))
        relative = folder.path[len(rank.path) :].lstrip("/")
        target = _Target(os.path.join(out, f"rank_{rank.rank}", relative), short_names=False)
        target.make()
        _convert_folder(dump.storage, folder, target, failures)
        _copy_others(dump.storage, folder, target, failures)
        target.write_mapping()
        written += target.tensors
        copied += target.copied
    if progress is not None:
        progress(len(folders), len(folders))
    return ConversionReport(written, copied, tuple(failures))


def convert_in_place(source: str | os.PathLike[str]) -> list[str]:
    """Write npy files beside the binary files of an asynchronous dump, as MindInsight does.

    Names contain only the last part of the operator's name, and the format ``NCHW`` if a device layout was decoded.
    npy files of an earlier conversion are deleted first; unlike in MindInsight, npy files that do not belong to a
    binary file beside them are kept. Failures are also written to ``convert_failed_files_summary.txt`` in the dump's
    folder.

    Parameters
    ----------
    source : str or path-like
        The dump, as for `open_dump`, on a local disk.

    Returns
    -------
    list of str
        One line for each file that failed: its path and tensors, joined by commas.

    Raises
    ------
    DumpError
        If ``source`` is not a dump, or cannot be written to.
    InputError
        If the dump is not on a local disk.
    """
    dump = _dump_to_convert(source)
    if not isinstance(dump.storage, LocalStorage):
        raise InputError(f"{dump.storage.root}: only a local dump can be converted in place; convert it to a folder.")
    failures: list[ConversionFailure] = []
    summary = _summary_path(dump)
    with _writing(summary):
        Path(summary).unlink(missing_ok=True)
        for rank in dump.ranks:
            for folder in _walk(dump.storage, rank.path, failures):
                if folder.operators or folder.overflows:
                    _convert_folder_in_place(dump.storage, folder, failures)
    lines = [failure.line for failure in failures]
    if lines:
        with _replacing(summary) as file:
            file.write(os.fsencode("".join(f"{line}\n" for line in lines)))
    return lines


def _dump_to_convert(source: str | os.PathLike[str]) -> LocatedDump:
    """Return a dump in MindSpore's layout. Raises InputError for other layouts, which have nothing to convert."""
    dump = find_dump(source)
    convertible = {(rank.rank, rank.path) for rank in MINDSPORE.find(dump.storage, [])}
    other = next((rank for rank in dump.ranks if (rank.rank, rank.path) not in convertible), None)
    if other is not None:
        raise InputError(
            f"{dump.storage.full_path(other.path)}: is not a dump of MindSpore; only these have tensors to convert, "
            "others are read as they are"
        )
    return dump


def _summary_path(dump: LocatedDump) -> str:
    return os.path.join(dump.storage.root, SUMMARY)


def _check_target(storage: Storage, out: str) -> None:
    if isinstance(storage, LocalStorage):
        source = os.path.realpath(storage.root)
        if os.path.commonpath([source, out]) == source:
            raise InputError(f"{out}: is in the dump to convert; name a folder outside it.")
    if os.path.lexists(out) and (not os.path.isdir(out) or os.listdir(out)):
        raise InputError(f"{out}: is not an empty folder; name one that does not exist yet.")


def _walk(storage: Storage, path: str, failures: list[ConversionFailure], depth: int = 0) -> Iterator[_Folder]:
    """Yield a folder and all below it."""
    try:
        listing = storage.list_folder(path)
    except DumpError as error:
        failures.append(ConversionFailure(storage.full_path(path), (), str(error)))
        return
    refused = (storage.full_path(_join(path, name)) for name in listing.refused)
    failures.extend(ConversionFailure(name, (), "leads out of the dump, or is not a file") for name in refused)
    yield _separated(storage, path, [file.name for file in listing.files], failures)
    if depth < _MAX_DEPTH:
        for name in listing.folders:
            yield from _walk(storage, f"{path}/{name}" if path else name, failures, depth + 1)


def _separated(storage: Storage, path: str, filenames: Iterable[str], failures: list[ConversionFailure]) -> _Folder:
    folder = _Folder(path)
    names = list(filenames)
    if MAPPING in names:
        try:
            text = storage.read_bytes(_join(path, MAPPING)).decode("utf-8", "replace")
            folder.mapping = parse_mapping(text)[0]
        except DumpError as error:
            failures.append(ConversionFailure(storage.full_path(_join(path, MAPPING)), (), str(error)))
    for filename in names:
        folder.add(filename)
    return folder


class _Target:
    """The folder to write, and the names in use in it.

    Parameters
    ----------
    path : str
    short_names : bool
        Name files as MindInsight does.
    """

    def __init__(self, path: str, *, short_names: bool) -> None:
        self.path = path
        self.short_names = short_names
        self.tensors = 0
        self.copied = 0
        self.mapping: dict[str, str] = {}
        self._taken: set[str] = set()

    def make(self) -> None:
        """Create the folder."""
        with _writing(self.path):
            os.makedirs(self.path, exist_ok=True)

    def take(self, name: str) -> str:
        """Return the path for a file of this name; a name that is too long becomes digits in the mapping."""
        if name in self._taken:
            raise TensorFileError(f"another file was already converted to {name}")
        self._taken.add(name)
        if len(os.fsencode(name)) > _MAX_NAME_BYTES:
            digits = str(int(hashlib.sha256(os.fsencode(name)).hexdigest()[:24], 16))
            self.mapping[digits] = name
            name = f"{digits}{os.path.splitext(name)[1]}"
        return os.path.join(self.path, name)

    def tensor_name(self, name: AscendName, slot: AscendSlot) -> str:
        """Return the name of a tensor's npy file."""
        op_name, host_format = name.op_name, slot.host_format
        if self.short_names:
            op_name = op_name.rpartition("_")[2]
            host_format = "NCHW" if slot.layout is not None else host_format
        head = f"{name.op_type}.{op_name}.{name.task_id}.{_stream(name)}.{name.timestamp}"
        return f"{head}.{slot.io}.{slot.index}.{host_format}.npy"

    def write_mapping(self) -> None:
        """Write ``mapping.csv`` if there are names to map."""
        if self.mapping:
            lines = "".join(f"{digits},{name}\n" for digits, name in sorted(self.mapping.items()))
            with _replacing(os.path.join(self.path, MAPPING)) as file:
                file.write(os.fsencode(lines))


def _convert_folder_in_place(storage: Storage, folder: _Folder, failures: list[ConversionFailure]) -> None:
    path = storage.full_path(folder.path)
    for filename in folder.others:
        if folder.comes_from_binary(filename):
            Path(path, filename).unlink()
    target = _Target(path, short_names=True)
    _convert_folder(storage, folder, target, failures)
    if target.mapping:
        target.mapping = {**folder.mapping, **target.mapping}
        target.write_mapping()


def _convert_folder(storage: Storage, folder: _Folder, target: _Target, failures: list[ConversionFailure]) -> None:
    for filename, name in folder.operators.items():
        failures.extend(_convert_operator(storage, _join(folder.path, filename), name, target))
    for filename, whole_name in folder.overflows.items():
        failures.extend(_convert_overflow(storage, _join(folder.path, filename), whole_name, target))


def _convert_operator(storage: Storage, path: str, name: AscendName, target: _Target) -> Iterator[ConversionFailure]:
    full_path = storage.full_path(path)
    try:
        with storage.open(path) as file:
            header = read_dump_data(file)
            yield from _convert_slots(file, header, name, target, full_path)
    except _TargetError:
        raise
    except DumpError as error:
        yield ConversionFailure(full_path, (), str(error))


def _convert_slots(
    file: OpenFile, header: DumpDataFile, name: AscendName, target: _Target, full_path: str
) -> Iterator[ConversionFailure]:
    reasons = {slot.label: _why_unwritten(file, slot, name, target) for slot in header.slots}
    failed = {label: reason for label, reason in reasons.items() if reason}
    if failed:
        yield ConversionFailure(full_path, tuple(failed), "; ".join(dict.fromkeys(failed.values())))


def _why_unwritten(file: OpenFile, slot: AscendSlot, name: AscendName, target: _Target) -> str:
    """Write one tensor; return the reason of a failure, else an empty string."""
    try:
        _write_tensor(file, slot, target.take(target.tensor_name(name, slot)))
        target.tensors += 1
    except TensorFileError as error:
        return str(error)
    return ""


def _write_tensor(file: OpenFile, slot: AscendSlot, path: str) -> None:
    segments = read_slot_segments(file, slot, _SEGMENT_ELEMENTS)
    segment = next(segments, np.empty(0, slot.dtype))
    # Element types that are not NumPy's own would load as nameless bytes.
    stored = np.dtype("<f4") if segment.dtype.isbuiltin == 2 else segment.dtype
    with _replacing(path) as out:
        header = {"descr": np.lib.format.dtype_to_descr(stored), "fortran_order": False, "shape": slot.shape}
        np.lib.format.write_array_header_1_0(out, header)
        out.write(segment.astype(stored, copy=False).tobytes())
        for later in segments:
            out.write(later.astype(stored, copy=False).tobytes())


def _convert_overflow(storage: Storage, path: str, name: str, target: _Target) -> Iterator[ConversionFailure]:
    try:
        documents = parse_overflow(storage.read_bytes(path, MAX_RECORD_BYTES), where=storage.full_path(path))
        for index, document in enumerate(documents):
            with _replacing(target.take(f"{name}.output.{index}.json")) as file:
                file.write(json.dumps(document, indent=4).encode())
    except _TargetError:
        raise
    except DumpError as error:
        yield ConversionFailure(storage.full_path(path), (), str(error))


def _copy_others(storage: Storage, folder: _Folder, target: _Target, failures: list[ConversionFailure]) -> None:
    """Copy files that are not converted, with their lines of the mapping."""
    for filename in folder.others:
        if filename in (MAPPING, SUMMARY) or folder.comes_from_binary(filename):
            continue
        digits = filename.partition(".")[0]
        if digits in folder.mapping:
            target.mapping[digits] = folder.mapping[digits]
        failures.extend(_copy(storage, _join(folder.path, filename), filename, target))


def _copy(storage: Storage, path: str, filename: str, target: _Target) -> Iterator[ConversionFailure]:
    try:
        with storage.open(path) as source, _replacing(target.take(filename)) as out:
            for offset in range(0, source.size_bytes, _COPY_BYTES):
                out.write(source.read(offset, _COPY_BYTES))
        target.copied += filename.endswith(".npy")
    except _TargetError:
        raise
    except DumpError as error:
        yield ConversionFailure(storage.full_path(path), (), str(error))


class _TargetError(DumpError):
    """The output folder cannot be written, so the other files would fail as well."""


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _TargetError(f"{path}: cannot be written: {error.strerror or error}.") from None


@contextmanager
def _replacing(path: str) -> Iterator[BinaryIO]:
    """Write a file under a temporary name and rename it when complete, so that no partial file is visible."""
    temporary = os.path.join(os.path.dirname(path), f".converting-{os.getpid()}.part")
    with _writing(path):
        try:
            with open(temporary, "wb") as file:
                yield file
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
