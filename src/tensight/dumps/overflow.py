"""Overflow records: the operator executions for which an Ascend device reported an overflow.

A record is a file ``Opdebug.Node_OpDebug.{task}.{stream}.{timestamp}`` (an asynchronously dumped file whose only output
is a raw block), or that block converted to ``….output.0.json`` by MindSpore or the vendor's tools.

The raw block is little-endian. The names and the order of the fields are those of the JSON form, which CANN documents
("Overflow/Underflow Operator Data Collection and Analysis"); the offsets are public in the sources of MindSpore (the
function that writes the JSON form) and MindStudio:

* older, 2,048 bytes: 128 bytes "DHA Atomic Add", 128 "L2 Atomic Add", 256 "AI Core", each starting with six uint64
  (model, stream, task, task type, pc_start, para_base); then the status of the DHA (256 bytes, one uint64), of the L2
  (256, one uint64), and of the AI Core (three uint64: kernel_code, block_idx, status).
* newer, starting with 0x5a5a5a5a: uint32 magic, version, valid, accelerator, reserved, data length; then uint64 fields
  which depend on the accelerator (AIC, AIV, AICPU, SDMA). Version 1 gives AIC and AIV four words of status.

The task in the *name* of a file is not always that of the overflowing operator (CANN advises to ignore it), so only the
content is used.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensight.dumps.ascend_names import UNKNOWN_STREAM, AscendName, parse_ascend_name
from tensight.errors import DumpError, MissingFileError, Problem, TensorFileError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from tensight.dumps.rank_folders import RankFolder, TensorFolders
    from tensight.dumps.storage import Storage

NO_ITERATION = -1
"""``iteration`` of a record directly in ``debug_files``, where PyNative mode writes them."""

MAX_RECORD_BYTES = 2**20
"""Larger files are refused; a record takes about 2,200 bytes."""

DEBUG_FILES = "debug_files"

_JSON_NAME = re.compile(r"(?P<name>.+)\.output\.[0-9]{1,9}\.json")
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,20}")

_MAGIC = 0x5A5A5A5A
_UNIT_FIELDS = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")
_CORE_FIELDS = (
    "model_id", "stream_id", "task_id", "task_type", "context_id", "thread_id", "pc_start", "para_base", "core_id",
    "block_id", "status",
)  # fmt: skip
_ACCELERATORS = {
    0: ("AIC", _CORE_FIELDS),
    1: ("AIV", _CORE_FIELDS),
    2: (
        "AICPU",
        ("model_id", "stream_id", "task_id", "task_type", "context_id", "cpu_id", "thread_id", "status"),
    ),
    3: (
        "SDMA",
        (
            "model_id", "stream_id", "task_id", "task_type", "context_id", "thread_id", "src_addr", "dst_addr",
            "channel_id", "status",
        ),
    ),
}  # fmt: skip
_HEXADECIMAL = frozenset({"pc_start", "para_base", "src_addr", "dst_addr", "kernel_code"})
_STATUS_WORDS_OF_VERSION_1 = 4

_AI_CORE_REASONS = {
    0x8: "negating the smallest integer",
    0x10: "integer addition, subtraction or multiplication",
    0x20: "floating-point arithmetic",
    0x80: "converting a negative number to unsigned",
    0x100: "converting float32 or int32 to float16",
    0x400: "accumulating in the matrix unit",
}


@dataclass(frozen=True, slots=True)
class OverflowUnit:
    """The report of one unit of the device.

    Attributes
    ----------
    unit : str
        "DHA Atomic Add", "L2 Atomic Add" or "AI Core"; in newer files "AIC", "AIV", "AICPU" or "SDMA".
    model_id, stream_id, task_id, task_type : int
        The operator execution.
    status : int
        The status register; 0 means no overflow. If there are several words, the union of their bits.
    pc_start, para_base, kernel_code, block_idx : int or None
        Addresses of the code and its arguments, and the block of the work that overflowed; None if not given.
    """

    unit: str
    model_id: int
    stream_id: int
    task_id: int
    task_type: int
    status: int
    pc_start: int | None = None
    para_base: int | None = None
    kernel_code: int | None = None
    block_idx: int | None = None

    @property
    def overflowed(self) -> bool:
        """Whether the unit reports an overflow."""
        return self.status != 0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Causes of the overflow in an AI core, from the documented bits of its status; empty for other units."""
        if self.unit not in ("AI Core", "AIC", "AIV"):
            return ()
        return tuple(reason for bit, reason in _AI_CORE_REASONS.items() if self.status & bit)


@dataclass(frozen=True, slots=True)
class OverflowRecord:
    """One overflow file.

    Attributes
    ----------
    rank : int
        Of the process.
    iteration : int
        `NO_ITERATION` (-1) if the file belongs to none.
    path : str
        Full path or URL of the file.
    name : AscendName
        The parsed file name; its task is not necessarily the overflowing one.
    units : tuple of OverflowUnit
        All units in the file, including those without an overflow.
    """

    rank: int
    iteration: int
    path: str
    name: AscendName
    units: tuple[OverflowUnit, ...]

    @property
    def executions(self) -> tuple[tuple[int, int], ...]:
        """The (task id, stream id) of the operator executions that overflowed, as in the names of tensor files.

        Each is also included with stream -1, for files of the older form, whose names have no stream.
        """
        pairs = {(unit.task_id, unit.stream_id) for unit in self.units if unit.overflowed}
        return tuple(sorted(pairs | {(task, UNKNOWN_STREAM) for task, _ in pairs}))


def overflowing(record: OverflowRecord, candidates: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Return which of the candidates (task id, stream id) of one rank and iteration overflowed, according to a record.

    The content of the record is used, not its file name. A candidate with stream -1 (unknown) matches by its task.
    """
    return frozenset(candidates) & frozenset(record.executions)


def overflow_name(filename: str) -> AscendName | None:
    """Parse the name of an overflow file, binary or JSON; None if it is not the name of one."""
    match = _JSON_NAME.fullmatch(filename)
    name = parse_ascend_name(match["name"] if match else filename)
    return name if name is not None and name.is_overflow else None


def parse_overflow(data: bytes, *, where: str) -> list[dict[str, Any]]:
    """Convert a binary overflow file to the JSON form that MindSpore writes, one object for each output.

    Parameters
    ----------
    data : bytes
        The whole file.
    where : str
        Its path, for messages.

    Raises
    ------
    TensorFileError
        If it is not an overflow file.
    """
    from tensight.dumps.ascend import read_dump_data

    try:
        file = read_dump_data(data)
    except TensorFileError as error:
        raise TensorFileError(str(error).replace("these bytes", where)) from None
    blocks = [data[s.offset : s.offset + s.size_bytes] for s in file.slots if s.io == "output"]
    if not blocks:
        raise TensorFileError(f"{where}: not an overflow record: the file has no output.")
    try:
        return [_newer_block(block) if _is_newer(block) else _older_block(block) for block in blocks]
    except struct.error:
        sizes = ", ".join(f"{len(block):,}" for block in blocks)
        raise TensorFileError(f"{where}: not an overflow record: {sizes} bytes are too few; it was cut off.") from None


def read_overflow(data: bytes, name: AscendName, *, rank: int, iteration: int, path: str) -> OverflowRecord:
    """Read an overflow file, binary or JSON.

    Parameters
    ----------
    data : bytes
        The whole file.
    name : AscendName
        From `overflow_name`.
    rank, iteration : int
        Rank and iteration of its folder.
    path : str
        Full path; JSON files are recognised by ``.json``.

    Raises
    ------
    TensorFileError
        If it is not an overflow file.
    """
    if path.endswith(".json"):
        try:
            documents = [json.loads(data)]
        except (ValueError, RecursionError):
            raise TensorFileError(f"{path}: not an overflow record: it is not JSON.") from None
    else:
        documents = parse_overflow(data, where=path)
    units = tuple(unit for document in documents for unit in _units(document, path))
    return OverflowRecord(rank, iteration, path, name, units)


def find_overflows(
    storage: Storage,
    rank: RankFolder,
    folders: TensorFolders,
    problems: list[Problem],
    iterations: Collection[int] | None = None,
) -> tuple[OverflowRecord, ...]:
    """Find and read the overflow files of a rank.

    They are in the iteration's folder, in ``debug_files/{iteration}`` or in ``debug_files``. If a record exists in both
    forms, the binary one is read.

    Parameters
    ----------
    storage : Storage
    rank : RankFolder
    folders : TensorFolders
        The iteration folders of the rank.
    problems : list of Problem
        Unreadable files are appended.
    iterations : collection of int, optional
        Only these; `NO_ITERATION` selects records without an iteration.

    Returns
    -------
    tuple of OverflowRecord
        By iteration, then time.
    """
    records = []
    for iteration, folder in _overflow_folders(storage, rank, folders, problems):
        if iterations is not None and iteration not in iterations:
            continue
        for names in _records_in(storage, folder, problems):
            record = _read_first(storage, folder, names, rank.rank, iteration, problems)
            if record is not None:
                records.append(record)
    return tuple(sorted(records, key=lambda record: (record.iteration, record.name.timestamp, record.path)))


def _overflow_folders(
    storage: Storage, rank: RankFolder, folders: TensorFolders, problems: list[Problem]
) -> Iterator[tuple[int, str]]:
    for by_iteration in folders.iterations.values():
        yield from by_iteration.items()
    debug_files = rank.child(DEBUG_FILES)
    try:
        names = storage.folders(debug_files)
    except DumpError as error:
        problems.append(Problem(debug_files, str(error), "its overflow records are left out"))
        return
    yield NO_ITERATION, debug_files
    for name in names:
        if re.fullmatch("[0-9]{1,18}", name):
            yield int(name), f"{debug_files}/{name}"


def _records_in(storage: Storage, folder: str, problems: list[Problem]) -> Iterator[list[tuple[str, AscendName]]]:
    """Yield the files of each record in a folder, the binary one first."""
    try:
        files = storage.list_folder(folder).files
    except MissingFileError:
        return
    except DumpError as error:
        problems.append(Problem(folder, str(error), "its overflow records are left out"))
        return
    grouped: dict[str, list[tuple[str, AscendName]]] = {}
    for file in files:
        # Folders easily contain 100,000 tensors; only names that can be records are parsed.
        if file.name[:8].lower() == "opdebug." and (name := overflow_name(file.name)) is not None:
            match = _JSON_NAME.fullmatch(file.name)
            grouped.setdefault(match["name"] if match else file.name, []).append((file.name, name))
    for files_of_record in grouped.values():
        yield sorted(files_of_record, key=lambda file: file[0].endswith(".json"))


def _read_first(
    storage: Storage,
    folder: str,
    names: Sequence[tuple[str, AscendName]],
    rank: int,
    iteration: int,
    problems: list[Problem],
) -> OverflowRecord | None:
    """Read the first readable file of a record, or all its JSON files if it has one for each output."""
    units: list[OverflowUnit] = []
    path = ""
    for filename, name in names:
        where = f"{folder}/{filename}"
        try:
            data = storage.read_bytes(where, MAX_RECORD_BYTES)
            record = read_overflow(data, name, rank=rank, iteration=iteration, path=storage.full_path(where))
        except DumpError as error:
            problems.append(Problem(where, str(error), "this overflow record is left out"))
            continue
        if not filename.endswith(".json"):
            return record
        units.extend(record.units)
        path = path or record.path
    return OverflowRecord(rank, iteration, path, names[0][1], tuple(units)) if path else None


def _is_newer(block: bytes) -> bool:
    return block[:4] == _MAGIC.to_bytes(4, "little")


def _older_block(block: bytes) -> dict[str, Any]:
    units = {
        name: dict(zip(_UNIT_FIELDS, struct.unpack_from("<6Q", block, offset), strict=True))
        for name, offset in (("DHA Atomic Add", 0), ("L2 Atomic Add", 128), ("AI Core", 256))
    }
    (units["DHA Atomic Add"]["status"],) = struct.unpack_from("<Q", block, 512)
    (units["L2 Atomic Add"]["status"],) = struct.unpack_from("<Q", block, 768)
    core = units["AI Core"]
    core["kernel_code"], core["block_idx"], core["status"] = struct.unpack_from("<3Q", block, 1024)
    return {name: _with_hexadecimals(unit) for name, unit in units.items()}


def _newer_block(block: bytes) -> dict[str, Any]:
    magic, version, valid, kind, reserved, length = struct.unpack_from("<6I", block)
    accelerator, fields = _ACCELERATORS.get(kind, (f"UNKNOWN_{kind}", ()))
    data: dict[str, Any] = dict(zip(fields, struct.unpack_from(f"<{len(fields)}Q", block, 24), strict=True))
    if version == 1 and fields is _CORE_FIELDS:
        offset = 24 + 8 * (len(fields) - 1)
        data["status"] = list(struct.unpack_from(f"<{_STATUS_WORDS_OF_VERSION_1}Q", block, offset))
    unit = {"valid": valid, "acc_type": accelerator, "rsv": reserved, "data_len": length}
    return {"magic": hex(magic), "version": version, "acc_list": {**unit, "data": _with_hexadecimals(data)}}


def _with_hexadecimals(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: hex(value) if name in _HEXADECIMAL else value for name, value in fields.items()}


def _units(document: object, path: str) -> list[OverflowUnit]:
    """Return the units in one JSON object of either form."""
    if not isinstance(document, Mapping):
        raise TensorFileError(f"{path}: not an overflow record: it is not an object.")
    if "acc_list" in document:
        entries = document["acc_list"]
        listed = entries if isinstance(entries, list) else [entries]
        # An entry that the device did not mark as valid contains no report.
        units = [
            (str(entry.get("acc_type")), entry.get("data"))
            for entry in listed
            if isinstance(entry, Mapping) and entry.get("valid") == 1
        ]
    else:
        units = [(name, document[name]) for name in ("DHA Atomic Add", "L2 Atomic Add", "AI Core") if name in document]
        if not units:
            raise TensorFileError(f"{path}: not an overflow record: it names none of the device's units.")
    return [_unit(name, fields, path) for name, fields in units]


def _unit(name: str, fields: object, path: str) -> OverflowUnit:
    if not isinstance(fields, Mapping):
        raise TensorFileError(f"{path}: not an overflow record: {name[:40]!r} is not an object.")

    def number(key: str) -> int:
        value = optional(key)
        if value is None:
            raise TensorFileError(f"{path}: not an overflow record: {name[:40]!r} has no valid {key!r}.")
        return value

    def optional(*keys: str) -> int | None:
        return next((value for key in keys if (value := _number(fields.get(key))) is not None), None)

    return OverflowUnit(
        unit=name[:40],
        model_id=number("model_id"),
        stream_id=number("stream_id"),
        task_id=number("task_id"),
        task_type=number("task_type"),
        status=number("status"),
        pc_start=optional("pc_start"),
        para_base=optional("para_base"),
        kernel_code=optional("kernel_code"),
        block_idx=optional("block_idx", "block_id"),
    )


def _number(value: object) -> int | None:
    """Return a number of up to 64 bits, given as number, text or list of words; None if it is not a number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value < 2**64 else None
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return _number(int(value, 0) if value.startswith("0x") else int(value))
    if isinstance(value, list) and value:
        words = [_number(word) if isinstance(word, int) else None for word in value]
        bits = 0
        for word in words:
            if word is None:
                return None
            bits |= word
        return bits
    return None
