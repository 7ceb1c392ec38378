"""The directory of an untrusted zip file: locations of members, without unpacking, with all bounds checked."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.errors import CheckpointError

if TYPE_CHECKING:
    from tensight.dumps.storage import OpenFile

STORED, DEFLATED = 0, 8

_MAX_DIRECTORY_BYTES = 64 * 2**20
"""A PyTorch checkpoint has about 100 bytes for each tensor there."""

_END = struct.Struct("<4s4H2LH")
_END_64_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_ENCRYPTED = 1
_ZIP_64 = 1


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A member of a zip file.

    Attributes
    ----------
    name : str
    method : int
        `STORED` or `DEFLATED`.
    offset : int
        Start of its bytes in the outer file.
    packed_bytes, size_bytes : int
        Size in the file, and unpacked.
    """

    name: str
    method: int
    offset: int
    packed_bytes: int
    size_bytes: int


def read_directory(file: OpenFile, start: int = 0, length: int | None = None) -> dict[str, ZipMember]:
    """Return the members of a zip file by name, in directory order.

    Parameters
    ----------
    file : OpenFile
    start, length : int
        Range of the zip file in `file`; by default the whole file.

    Raises
    ------
    CheckpointError
        It is not a zip file, is truncated or damaged; two members share a name or bytes; a member is encrypted, uses
        another compression than deflate, or expands far more than tensors do (a zip bomb).
    """
    length = file.size_bytes - start if length is None else length
    try:
        return _Directory(file, start, length).members()
    except struct.error:
        raise CheckpointError(f"{file.path}: the directory of the zip file is damaged.") from None


class _Directory:
    def __init__(self, file: OpenFile, start: int, length: int) -> None:
        self._file, self._start, self._length = file, start, length

    def members(self) -> dict[str, ZipMember]:
        count, size, offset = self._end_record()
        if size > _MAX_DIRECTORY_BYTES or offset + size > self._length or count * _ENTRY.size > size:
            raise self._error(f"its directory of {size:,} bytes for {count:,} files cannot be right")
        data = self._read(offset, size)
        members: dict[str, ZipMember] = {}
        position = 0
        for _ in range(count):
            member, position = self._member(data, position)
            if member.name in members:
                raise self._error(f"two files in it are called {member.name[:80]!r}")
            members[member.name] = member
        self._check_apart(members)
        return members

    def _end_record(self) -> tuple[int, int, int]:
        """Return number of members, and size and offset of the directory."""
        tail_length = min(self._length, _END.size + 65535)
        tail = self._read(self._length - tail_length, tail_length)
        at = tail.rfind(b"PK\5\6")
        if at < 0 or len(tail) - at < _END.size:
            raise self._error("the end of the zip file is missing; the file is cut off")
        _, _, _, _, count, size, offset, _ = _END.unpack_from(tail, at)
        if count == 0xFFFF or 0xFFFFFFFF in (size, offset):
            where = self._length - tail_length + at - _END_64_LOCATOR.size
            mark, _, end, _ = _END_64_LOCATOR.unpack(self._read(where, _END_64_LOCATOR.size))
            if mark == b"PK\6\7":
                signature, *_, count, size, offset = _END_64.unpack(self._read(end, _END_64.size))
                if signature != b"PK\6\6":
                    raise self._error("the end of the zip file is damaged")
        return count, size, offset

    def _member(self, data: bytes, position: int) -> tuple[ZipMember, int]:
        mark, _, _, flags, method, _, _, _, packed, size, *lengths, _, _, _, offset = _ENTRY.unpack_from(data, position)
        name_length, extra_length, comment_length = lengths[:3]
        if mark != b"PK\1\2":
            raise self._error("its directory is damaged")
        position += _ENTRY.size
        name = data[position : position + name_length].decode("utf-8", "replace")
        extra = data[position + name_length : position + name_length + extra_length]
        if 0xFFFFFFFF in (packed, size, offset):
            size, packed, offset = self._zip_64(extra, size, packed, offset)
        if flags & _ENCRYPTED:
            raise self._error(f"{name[:80]!r} is encrypted")
        if method not in (STORED, DEFLATED):
            raise self._error(f"{name[:80]!r} is compressed by method {method}; deflate is read")
        if method == STORED and packed != size:
            raise self._error(f"{name[:80]!r} has two sizes, {packed:,} and {size:,} bytes")
        begin = self._data_offset(offset)
        if begin + packed > self._start + self._length:
            raise self._error(f"{name[:80]!r} reaches past its end; the file is cut off")
        end = position + name_length + extra_length + comment_length
        return ZipMember(name, method, begin, packed, size), end

    def _zip_64(self, extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
        """Return sizes and offset of a large member from its extra field."""
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            if kind == _ZIP_64:
                sizes = list(struct.unpack_from(f"<{min(length, len(extra) - at - 4) // 8}Q", extra, at + 4))
                numbers = [size, packed, offset]
                for index, value in enumerate(numbers):
                    if value == 0xFFFFFFFF and sizes:
                        numbers[index] = sizes.pop(0)
                return numbers[0], numbers[1], numbers[2]
            at += 4 + length
        raise self._error("the sizes of a large file in it are missing")

    def _data_offset(self, header: int) -> int:
        """Return the start of a member's bytes in the outer file."""
        mark, *_, name_length, extra_length = _LOCAL.unpack(self._read(header, _LOCAL.size))
        if mark != b"PK\3\4":
            raise self._error("the beginning of a file in it is damaged")
        return int(self._start + header + _LOCAL.size + name_length + extra_length)

    def _check_apart(self, members: dict[str, ZipMember]) -> None:
        end = 0
        for member in sorted(members.values(), key=lambda member: member.offset):
            if member.packed_bytes and member.offset < end:
                raise self._error(f"{member.name[:80]!r} overlaps another file in it")
            end = max(end, member.offset + member.packed_bytes)

    def _read(self, offset: int, length: int) -> bytes:
        if offset < 0 or offset + length > self._length:
            raise self._error("it is cut off")
        return self._file.read(self._start + offset, length)

    def _error(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self._file.path}: {what}; it is not read.")
