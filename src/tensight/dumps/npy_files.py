"""Read the header of an npy file, and check it before memory is allocated for the array.

Only arrays of numbers are accepted: no pickled objects, no records, no text. The format is NumPy's
(``numpy.lib.format``); the header is parsed with a narrow grammar of our own, because files are untrusted.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.dumps.names import NAMELESS
from tensight.errors import TensorFileError
from tensight.tensors.elements import dtype_named
from tensight.tensors.narrow_types import NARROW_NAMES, dtype_name

if TYPE_CHECKING:
    from tensight.dumps.storage import OpenFile

_MAGIC = b"\x93NUMPY"

#: NumPy's own limit for the header of an untrusted file.
_MAX_HEADER_BYTES = 10_000

#: The maximum of NumPy 1.x.
_MAX_DIMENSIONS = 32

#: Enough for the header of nearly every file: one read instead of two.
_FIRST_READ_BYTES = 256

_ITEM = re.compile(
    r"""\s*(?P<q>['"])(?P<key>descr|fortran_order|shape)(?P=q)\s*:\s*"""
    r"""(?:(?P<p>['"])(?P<descr>[^'"]{1,16})(?P=p)|(?P<order>True|False)|\((?P<shape>[0-9,\sL]*)\))\s*(?:,|$)""",
    re.ASCII,
)

_NUMBERS = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|c(?:8|16)|V[12])|\?")

#: NumPy writes this for float8_e5m2 of ml_dtypes, but cannot read it.
_E5M2 = re.compile(r"[<|=]?f1")

#: MindSpore's name of bfloat16 on CPU (2.7, 2.10), which only its own extension of NumPy knows.
_MINDSPORE_BFLOAT16 = re.compile(r"[<=]?E2")

_HALVES = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """Element type, shape and position of the elements in a file.

    Attributes
    ----------
    dtype : numpy.dtype
        Type of the elements.
    shape : tuple of int
        Length of each dimension.
    offset : int
        Offset of the elements in bytes.
    fortran : bool
        Whether the order is Fortran's: the first axis varies fastest.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    fortran: bool = False

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def data_bytes(self) -> int:
        """Size of all elements in bytes."""
        return self.count * self.dtype.itemsize


def read_header(file: OpenFile, declared_dtype: str = "") -> TensorHeader:
    """Read and check the header of an open npy file.

    Parameters
    ----------
    file : OpenFile
    declared_dtype : str
        Element type in the file's name. It is only used to interpret nameless bytes (``V2``, ``V1``): as bfloat16, or
        an 8-bit float.

    Returns
    -------
    TensorHeader

    Raises
    ------
    TensorFileError
        If the file is not an npy file, does not contain numbers, or is shorter than its header requires.
    """
    where = file.path
    start = file.read(0, _FIRST_READ_BYTES)
    if len(start) < 10 or not start.startswith(_MAGIC):
        what = "is empty" if not start else "is not an npy file"
        raise TensorFileError(f"{where}: {what} ({file.size_bytes:,} bytes); the dump of this tensor is damaged.")
    prefix, length = (10, start[8:10]) if start[6] == 1 else (12, start[8:12])
    if start[6] not in (1, 2, 3) or len(length) < prefix - 8:
        raise TensorFileError(f"{where}: npy format {start[6]}.{start[7]} is not known; 1.0 to 3.0 are.")
    end = prefix + int.from_bytes(length, "little")
    if end - prefix > _MAX_HEADER_BYTES:
        raise TensorFileError(f"{where}: a header of {end - prefix:,} bytes; at most {_MAX_HEADER_BYTES:,} make sense.")
    text = start[prefix:end] if end <= len(start) else file.read(prefix, end - prefix)
    if len(text) < end - prefix:
        raise TensorFileError(f"{where}: ends inside its header: {end:,} bytes expected, {file.size_bytes:,} found.")
    dtype, shape, fortran = _parsed_at(where, text)
    if dtype.kind == "V" and dtype_name(dtype) not in NARROW_NAMES:
        dtype = _nameless(where, dtype, declared_dtype)
    dtype = written_dtype(dtype, math.prod(shape), file.size_bytes - end)
    header = TensorHeader(dtype, shape, end, fortran)
    if end + header.data_bytes > file.size_bytes:
        raise TensorFileError(
            f"{where}: too short for {dtype} of shape {_brief(shape)}: "
            f"{end + header.data_bytes:,} bytes expected, {file.size_bytes:,} found."
        )
    return header


def written_dtype(dtype: np.dtype[Any], count: int, data_bytes: int) -> np.dtype[Any]:
    """Return the type of the elements that follow a header.

    On CPU, MindSpore (2.7, 2.10) computes some operators of float16 in float32, and writes their float32 outputs under
    a header for float16.

    Parameters
    ----------
    dtype : numpy.dtype
        Element type in the header.
    count : int
        Number of elements according to the header.
    data_bytes : int
        Number of bytes after the header.
    """
    is_twice = count > 0 and data_bytes == 2 * count * dtype.itemsize
    return np.dtype(np.float32).newbyteorder(dtype.byteorder) if is_twice and dtype_name(dtype) in _HALVES else dtype


def _parsed_at(where: str, text: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    try:
        return parse_header(text)
    except ValueError as error:
        raise TensorFileError(f"{where}: {error}") from None


# A dump has hundreds of thousands of files, but only a few different headers.
@lru_cache(maxsize=4096)
def parse_header(text: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Parse the dictionary in an npy header.

    Parameters
    ----------
    text : bytes
        ``{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`` and padding.

    Returns
    -------
    tuple of numpy.dtype, tuple of int, bool
        Element type, shape, whether the order is Fortran's.

    Raises
    ------
    ValueError
        If it has another form or the elements are not numbers.
    """
    body = text.decode("latin-1").strip()
    if not (body.startswith("{") and body.endswith("}")):
        raise ValueError("the npy header is damaged.")
    body, position = body[1:-1].rstrip(), 0
    items: dict[str, re.Match[str]] = {}
    while position < len(body):
        item = _ITEM.match(body, position)
        if item is None or item["key"] in items:
            raise ValueError(_why_not(body))
        items[item["key"]], position = item, item.end()
    if len(items) != 3 or not items["descr"]["descr"] or not items["fortran_order"]["order"]:
        raise ValueError(_why_not(body))
    if items["shape"]["shape"] is None:
        raise ValueError("the npy header is damaged: its shape is not a tuple of numbers.")
    descr = items["descr"]["descr"]
    return _dtype(descr), _shape(items["shape"]["shape"]), items["fortran_order"]["order"] == "True"


def _dtype(descr: str) -> np.dtype[Any]:
    if _MINDSPORE_BFLOAT16.fullmatch(descr):
        return dtype_named("bfloat16")
    if _E5M2.fullmatch(descr):
        return dtype_named("float8_e5m2")
    if _NUMBERS.fullmatch(descr) is None:
        raise ValueError(f"elements of type {descr!r} are not numbers; they are not read.")
    return np.dtype(descr)


def _shape(text: str) -> tuple[int, ...]:
    # "(3)" is a number in Python, but a writer that leaves the comma out means a vector.
    dims = [dim.strip().removesuffix("L") for dim in text.split(",")]
    if dims and not dims[-1]:
        dims.pop()
    if not all(dim.isdigit() and len(dim) <= 18 for dim in dims):
        raise ValueError("the npy header is damaged: its shape is not a tuple of numbers.")
    if len(dims) > _MAX_DIMENSIONS:
        raise ValueError(f"{len(dims)} dimensions; at most {_MAX_DIMENSIONS} are possible.")
    return tuple(int(dim) for dim in dims)


def _why_not(body: str) -> str:
    if "'|O'" in body or "'O'" in body:
        return "holds pickled Python objects, which are never loaded."
    if re.search(r"""['"]descr['"]\s*:\s*[\[(]""", body):
        return "holds records, not a tensor of numbers."
    return "the npy header is damaged."


def _nameless(where: str, dtype: np.dtype[Any], declared_dtype: str) -> np.dtype[Any]:
    """Return the type of elements for which the header has only the size, because NumPy cannot name extensions."""
    name = NAMELESS.get(declared_dtype.lower())
    declared = dtype_named(name) if name else dtype
    if name is None or declared.itemsize != dtype.itemsize:
        raise TensorFileError(f"{where}: elements of type {dtype} are not numbers; they are not read.")
    return declared


def _brief(shape: tuple[int, ...]) -> str:
    text = str(shape)
    return text if len(text) <= 120 else text[:117] + "…)"
