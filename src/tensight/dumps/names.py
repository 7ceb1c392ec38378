"""Parse file names of dumped tensors, without opening files.

A name contains the operator, the slot and the time of the dump, joined by dots, and operator and parameter names may
contain dots themselves. So names are parsed from the right, where the number of fields is known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Maximum of every number in a name: ids and times are signed 64-bit integers in tables.
_MAX_NUMBER = 2**63 - 1

_MAX_SLOT = 2**31 - 1

_IO = frozenset({"input", "output"})

#: The characters of a scoped name that MindSpore replaces by ``_`` in file names.
_SEPARATORS = str.maketrans({"/": "_", ".": "_", "\\": "_", " ": "_"})

#: Element types that npy files cannot express, by their names in file names, in lower case.
NAMELESS = {
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "float8e5m2": "float8_e5m2",
}

_CONSTANT = re.compile(r"(?:^|[-_/])(data-\d{1,18})$", re.ASCII)

#: The raw files of MindSpore up to 1.1: ``Default--conv1-Conv2d--Conv2D-op1_output_0_shape_4_3_Float32_NCHW.bin``.
_RAW = re.compile(
    r"(?P<op>.+)_(?P<io>input|output)_(?P<slot>\d{1,9})_shape_(?P<shape>(?:\d{1,18}_)*)"
    r"(?P<dtype>[A-Za-z][A-Za-z0-9]{0,31})_(?P<format>[A-Za-z0-9_]{1,63})\.bin",
    re.ASCII | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class TensorFileName:
    """The fields in the name of a dumped tensor's file.

    Attributes
    ----------
    op_type : str
        Operator type; ``Parameter`` for parameters, constants and network inputs; empty if the name has none.
    op_name : str
        Operator or parameter name as in the file name: without scopes (MindSpore up to 2.3), or the whole scoped name
        joined by ``_``.
    io : {"input", "output"}
    slot : int
    task_id, stream_id : int
    timestamp : int
        Microseconds.
    format : str
        Layout of the elements, such as ``DefaultFormat`` or ``NCHW``.
    declared_dtype : str
        Element type in the name, such as ``BFloat16`` (whose elements MindSpore stores as float32); empty if the name
        has no such field (MindSpore up to 2.3).
    """

    op_type: str
    op_name: str
    io: Literal["input", "output"]
    slot: int
    task_id: int
    stream_id: int
    timestamp: int
    format: str
    declared_dtype: str


@dataclass(frozen=True, slots=True)
class RawFileName:
    """The fields in the name of a raw ``.bin`` file of MindSpore up to 1.1, which has no header.

    Attributes
    ----------
    op_name : str
        Full scoped name (with ``/`` for ``--`` in the file name).
    io : {"input", "output"}
    slot : int
    shape : tuple of int
    dtype : str
        Such as ``Float32``.
    format : str
    """

    op_name: str
    io: Literal["input", "output"]
    slot: int
    shape: tuple[int, ...]
    dtype: str
    format: str


#: (head, task, stream, timestamp, io, slot, format, dtype), all but the four numbers as text.
SplitName = tuple[str, int, int, int, Literal["input", "output"], int, str, str]


def split_name(name: str) -> SplitName | None:
    """Split the name of an npy file of either generation into its fields.

    Names with 8 fields end in ``.{task}.{stream}.{timestamp}.{io}.{slot}.{format}.npy``, names with 9 fields have
    ``.{dtype}`` before ``.npy``.

    Parameters
    ----------
    name : str
        File name without its folder.

    Returns
    -------
    SplitName or None
        The first item is the head, ``{op_type}.{op_name}``, not yet divided; None if the name has another form.
    """
    if not name.endswith(".npy"):
        return None
    fields = name[:-4].rsplit(".", 7)
    count = len(fields)
    if count == 8 and (fields[4] == "input" or fields[4] == "output"):
        head, task, stream, time, io, slot, layout, dtype = fields
    elif count >= 7 and (fields[-3] == "input" or fields[-3] == "output"):
        task, stream, time, io, slot, layout = fields[-6:]
        head, dtype = fields[0] if count == 7 else f"{fields[0]}.{fields[1]}", ""
    else:
        return None
    numbers = f"{task}{stream}{time}{slot}"
    if not (head and task and stream and time and slot and numbers.isascii() and numbers.isdigit()):
        return None
    task_id, stream_id, timestamp, slot_id = int(task), int(stream), int(time), int(slot)
    if max(task_id, stream_id, timestamp) > _MAX_NUMBER or slot_id > _MAX_SLOT:
        return None
    return head, task_id, stream_id, timestamp, ("input" if io == "input" else "output"), slot_id, layout, dtype


def without_times(names: Iterable[str]) -> tuple[list[str], list[int]]:
    """Separate the names of npy files from the times in them, for the comparison of folders.

    Parameters
    ----------
    names : iterable of str
        File names without their folder.

    Returns
    -------
    list of str
        Each name with ``/`` in place of its time, which no file name contains; names of another form are unchanged.
    list of int
        The times; 0 if a name has none.
    """
    timeless: list[str] = []
    times: list[int] = []
    for name in names:
        fields = name.rsplit(".", 6)
        # The input or output is followed by its slot, the format, in newer versions the element type, and "npy".
        at = 2 if len(fields) > 3 and fields[3] in _IO else 1
        time = fields[at] if len(fields) == 7 and fields[at + 1] in _IO else ""
        if time.isdigit() and time.isascii() and len(time) < 20 and int(time) <= _MAX_NUMBER:
            fields[at] = "/"
            timeless.append(".".join(fields))
            times.append(int(time))
        else:
            timeless.append(name)
            times.append(0)
    return timeless, times


def split_head(head: str) -> tuple[str, str]:
    """Split ``{op_type}.{op_name}``; operator types contain no dots, names may.

    A head without a dot (the digits that replace a long name) is a name without a type.
    """
    op_type, dot, op_name = head.partition(".")
    return (op_type, op_name) if dot else ("", head)


def parse_name(name: str) -> TensorFileName | None:
    """Read the name of an npy file of either generation; None if the name has another form."""
    split = split_name(name)
    if split is None:
        return None
    head, task_id, stream_id, timestamp, io, slot, layout, dtype = split
    op_type, op_name = split_head(head)
    return TensorFileName(op_type, op_name, io, slot, task_id, stream_id, timestamp, layout, dtype)


def parse_raw_name(name: str) -> RawFileName | None:
    """Read the name of a raw ``.bin`` file of MindSpore up to 1.1; None if the name has another form."""
    if len(name) > 4096:
        return None
    match = _RAW.fullmatch(name)
    if match is None:
        return None
    dims = tuple(int(dim) for dim in match["shape"].split("_") if dim)
    if len(dims) > 32:
        return None
    dtype = match["dtype"].removeprefix("kNumberType")
    io: Literal["input", "output"] = "input" if match["io"] == "input" else "output"
    return RawFileName(match["op"].replace("--", "/"), io, int(match["slot"]), dims, dtype, match["format"])


def joined(full_name: str) -> str:
    """Return a scoped name as newer file names spell it: slashes, dots, backslashes and spaces become ``_``.

    Different names can become equal, so the inverse needs the graph.
    """
    return full_name.translate(_SEPARATORS)


def constant_key(name: str) -> str | None:
    """Return ``data-3`` for ``data-3``, ``Default--data-3`` and ``Default_data-3``; None for other names."""
    match = _CONSTANT.search(name)
    return match[1] if match else None


def parse_mapping(text: str) -> tuple[dict[str, str], int]:
    """Parse ``mapping.csv``, which has the names of files that would be longer than 255 bytes.

    Parameters
    ----------
    text : str
        Lines ``{digits},{original file name}``.

    Returns
    -------
    dict of str to str
        Original file name by digits. The names are only parsed, never opened.
    int
        Number of refused lines: of another form, or with a path separator in the name.
    """
    names: dict[str, str] = {}
    refused = 0
    for raw in text.splitlines():
        line = raw.strip()
        if not line:
            continue
        digits, comma, original = line.partition(",")
        digits, original = digits.strip().removesuffix(".npy"), original.strip()
        if not comma or not (digits.isascii() and digits.isdigit()) or not original or set(original) & set("/\\\0"):
            refused += 1
            continue
        names[digits] = original
    return names, refused


def original_name(name: str, mapping: dict[str, str]) -> str:
    """Return the original name of a file that ``mapping.csv`` renames; else its own.

    The digits can replace the whole name, or (after conversion from binary) only operator type and name.
    """
    digits, dot, rest = name.partition(".")
    if not digits.isdigit() or digits not in mapping:
        return name
    original = mapping[digits]
    if not dot or rest == "npy":
        return original if original.endswith(".npy") or not dot else f"{original}.npy"
    head = ".".join(original.split(".")[:2])
    return f"{head}.{rest}"
