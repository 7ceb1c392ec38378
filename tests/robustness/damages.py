"""Everything that can happen to a file on its way from the training machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

Damage = Callable[[Path], object]

#: What each kind of file begins with, where it begins with anything particular.
_MAGIC = {".npy": b"\x93NUMPY\x01\x00\x76\x00", ".pb": b"\x08\x01\x22", ".json": b"{", ".csv": b"1,"}


def _content(change: Callable[[bytes], bytes]) -> Damage:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def _cut(part: float, extra: int = 0) -> Damage:
    return _content(lambda data: data[: max(0, int(len(data) * part) + extra)])


def _noise(length: int) -> bytes:
    return np.random.default_rng(length).bytes(length)


def _in_place_of(path: Path) -> Path:
    path.unlink()
    return path


def _outside(path: Path) -> Path:
    """Return a file that is no part of the dump, with the content of `path`."""
    dump = next(parent for parent in path.parents if parent.name.startswith("rank_")).parent
    outside = dump.parent / "outside"
    outside.write_bytes(path.read_bytes())
    return outside


def _linked_outside(path: Path) -> None:
    target = _outside(path)
    _in_place_of(path).symlink_to(target)


def _other_time(path: Path) -> None:
    parts = path.name.split(".")
    time = max((part for part in parts if part.isdigit()), key=len, default="")
    later = path.name.replace(time, str(int(time) + 7)) if time else f"copy of {path.name}"
    path.with_name(later).write_bytes(path.read_bytes())


FILE_DAMAGES: dict[str, Damage] = {
    "empty": _cut(0),
    "one byte": _cut(0, 1),
    "cut in its head": _cut(0, 9),
    "cut in the middle": _cut(0.5),
    "cut before its end": _cut(1, -1),
    "noise": _content(lambda data: _noise(700)),
    "noise behind its magic": lambda path: path.write_bytes(_MAGIC.get(path.suffix, b"") + _noise(600)),
    "noise in the middle": _content(lambda data: data[: len(data) // 2] + _noise(64) + data[len(data) // 2 + 64 :]),
    "zeros": _content(lambda data: bytes(len(data))),
    "longer": _content(lambda data: data + _noise(1000)),
    "a folder": lambda path: _in_place_of(path).mkdir(),
    "a link to nowhere": lambda path: _in_place_of(path).symlink_to("nowhere"),
    "a link to itself": lambda path: _in_place_of(path).symlink_to(path.name),
    "a link out of the dump": _linked_outside,
    "a link to a device": lambda path: _in_place_of(path).symlink_to("/dev/zero"),
    "a link to its folder": lambda path: _in_place_of(path).symlink_to("."),
    "a pipe": lambda path: os.mkfifo(_in_place_of(path)),
    "missing": lambda path: path.unlink(),
    "renamed": lambda path: path.rename(path.with_name("no name of a tensor")),
    "renamed in bytes": lambda path: os.rename(path, os.fsencode(path.parent) + b"/\xff\xfe.npy"),
    "renamed to markup": lambda path: path.rename(path.with_name("[red]\x1b[31m\n[@x].0.0.1.output.0.F.npy")),
    "twice": _other_time,
}
"""By name; each is handed the path of the file."""


def npy(descr: object, shape: str, *, order: str = "False", data: bytes = b"\0" * 64) -> bytes:
    """Return an npy file whose header says what is asked for, whatever follows it."""
    quoted = descr if isinstance(descr, str) and descr.startswith(("[", "(", "{")) else repr(descr)
    header = f"{{'descr': {quoted}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    header = header.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


NPY_HEADERS: dict[str, bytes] = {
    "2**60 elements": npy("<f4", f"({2**60},)"),
    "product overflows": npy("<f4", f"({2**33}, {2**33})"),
    "beyond 64 bits": npy("<f4", f"({10**30},)"),
    "empty but huge": npy("<f4", f"(0, {2**62}, {2**62})"),
    "negative": npy("<f4", "(-4, -4)"),
    "too many dimensions": npy("<f4", "(" + "1," * 40 + ")"),
    "no tuple": npy("<f4", "16"),
    "a call": npy("<f4", "(__import__('os').getpid(),)"),
    "nested": npy("<f4", "((((2,),),),)"),
    "objects": npy("|O", "(2,)"),
    "records": npy("[('a', '<f4'), ('b', '<i4')]", "(8,)"),
    "text": npy("<U4", "(4,)"),
    "bytes": npy("|S4", "(4,)"),
    "dates": npy("<M8[s]", "(8,)"),
    "nameless": npy("|V2", "(32,)"),
    "long double": npy("<f16", "(4,)"),
    "huge item": npy("|V2147483647", "(1,)"),
}
"""Files that must be refused, or hold nothing, by what is odd about their header."""

NPY_ODD: dict[str, bytes] = {
    "other byte order": npy(">f4", "(4, 4)"),
    "Fortran order": npy("<f4", "(2, 8)", order="True"),
    "complex": npy("<c8", "(8,)"),
    "bool with other bytes": npy("|b1", "(64,)", data=bytes(range(64))),
    "half": npy("<f2", "(32,)", data=b"\x00\x7c" * 32),
    "no dimension": npy("<f8", "()"),
    "no element": npy("<f4", "(0,)", data=b""),
    "unsigned": npy("<u8", "(8,)", data=b"\xff" * 64),
    "many dimensions": npy("<f4", "(" + "1, " * 20 + ")"),
    "longer than its header says": npy("<f4", "(2,)"),
}
"""Files that are unusual and right."""
