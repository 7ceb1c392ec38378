"""Tensors as bytes: a slice in a requested format, and whole tensors as npy files with resumable download."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import mmap
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tensight.errors import InputError
from tensight.graph import TensorAddress
from tensight.tensors.views import ViewResult

Form = Literal["raw", "npy", "arrow", "json"]

MEDIA_TYPES: dict[Form, str] = {
    "raw": "application/octet-stream",
    "npy": "application/x-npy",
    "arrow": "application/vnd.apache.arrow.stream",
    "json": "application/json",
}
MOST_ELEMENTS = 1_000_000
"""Maximum number of elements of a slice; a file has no limit."""
MOST_JSON_ELEMENTS = 100_000

PIECE_BYTES = 2**20
_STALLED_S = 120.0
"""Seconds after which a download whose client accepts nothing is aborted; it can be resumed."""
_SAMPLES = 64
_SAMPLE_BYTES = 4096
_RANGE = re.compile(r"bytes=(?P<first>[0-9]{0,18})-(?P<last>[0-9]{0,18})", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def part_response(view: ViewResult, form: Form) -> Response:
    """Return a slice or heat map as a response; call it in a thread.

    Parameters
    ----------
    view : ViewResult
        Must contain an array.
    form : {"raw", "npy", "arrow", "json"}
        ``raw``: the elements in C order, little-endian; ``npy``: a NumPy file; ``arrow``: a stream of record batches
        with one column ``value``; ``json``: nested lists, with ``"NaN"``, ``"Infinity"`` and ``"-Infinity"`` for values
        that are not JSON numbers, and pairs for complex numbers.

    Raises
    ------
    InputError
        Too many elements for JSON.
    """
    array = view.array
    if array is None:
        raise InputError("this view has no elements to send")
    array = np.ascontiguousarray(array).reshape(array.shape).astype(array.dtype.newbyteorder("<"), copy=False)
    body = _WRITERS[form](array)
    headers = {
        "X-Tensight-Dtype": array.dtype.name,
        "X-Tensight-Shape": _listed(array.shape),
        "X-Tensight-Tensor-Dtype": view.dtype,
        "X-Tensight-Tensor-Shape": _listed(view.shape),
        "X-Tensight-Slice": view.slice,
    }
    return Response(body, headers=headers, media_type=MEDIA_TYPES[form])


def _listed(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape))


def _raw(array: NDArray[Any]) -> bytes:
    return array.tobytes()


def _npy(array: NDArray[Any]) -> bytes:
    plain = _plain(array)
    return _npy_header(plain.dtype, plain.shape) + plain.tobytes()


def _arrow(array: NDArray[Any]) -> bytes:
    import pyarrow as pa  # late: most servers never write Arrow

    flat = _plain(array).reshape(-1)
    if flat.dtype.kind == "c":
        column = pa.FixedSizeListArray.from_arrays(pa.array(flat.view(flat.real.dtype)), 2)
    else:
        column = pa.array(flat)
    schema = pa.schema([("value", column.type)], {"shape": _listed(array.shape), "dtype": array.dtype.name})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([column], schema=schema))
    return sink.getvalue()


def _json(array: NDArray[Any]) -> bytes:
    if array.size > MOST_JSON_ELEMENTS:
        raise InputError(
            f"the slice has {array.size:,} elements; as JSON at most {MOST_JSON_ELEMENTS:,} are sent: "
            "choose a smaller slice, or the form raw, npy or arrow"
        )
    plain = _plain(array)
    if plain.dtype.kind == "c":
        plain = np.ascontiguousarray(plain).view(plain.real.dtype).reshape(*plain.shape, 2)
    if plain.dtype.kind == "f" and not np.isfinite(plain).all():
        plain = _with_words(plain)
    return json.dumps(plain.tolist(), allow_nan=False, separators=(",", ":")).encode()


def _with_words(array: NDArray[Any]) -> NDArray[np.object_]:
    """Return an array of objects: numbers, and strings for values that are not JSON numbers."""
    words = array.astype(object)
    words[np.isnan(array)] = "NaN"
    words[np.isposinf(array)] = "Infinity"
    words[np.isneginf(array)] = "-Infinity"
    return words


_WRITERS: dict[Form, Callable[[NDArray[Any]], bytes]] = {"raw": _raw, "npy": _npy, "arrow": _arrow, "json": _json}


def _plain_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in a file: one of NumPy's own, little-endian, that contains every value of the tensor's dtype.

    NumPy would write bfloat16 and similar types as anonymous bytes, and float8_e5m2 under a name that it cannot read.
    """
    if dtype.isbuiltin != 2:
        return dtype.newbyteorder("<")
    return np.dtype(np.int8) if np.can_cast(dtype, np.int8) else np.dtype("<f4")


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(_plain_dtype(array.dtype), copy=False)


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool = False) -> bytes:
    header = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    return header.getvalue()


class TensorFile:
    """A tensor as an npy file that can be read in parts, without holding all of it in memory.

    Parameters
    ----------
    array : ndarray
        May be memory-mapped.
    identity : str
        Identifies the tensor; a part of the tag.

    Attributes
    ----------
    size_bytes : int
        Size of the file.
    tag : str
        Changes with the content; in quotes, as in HTTP's ETag.
    """

    def __init__(self, array: NDArray[Any], identity: str) -> None:
        fortran = array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous
        self._elements = array.T if fortran else array
        self._dtype = _plain_dtype(array.dtype)
        self._header = _npy_header(self._dtype, array.shape, fortran)
        self.size_bytes = len(self._header) + array.size * self._dtype.itemsize
        same_width = self._dtype.itemsize == array.dtype.itemsize
        self._map, self._map_offset = _map_behind(array) if same_width else (None, 0)
        self.tag = self._tag(array, identity)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`."""
        header = self._header[start:end]
        first, last = max(start - len(self._header), 0), end - len(self._header)
        if last <= first:
            return header
        data = self._data(first, last)
        self._let_go(first, last)
        return header + data

    def _data(self, first: int, last: int) -> bytes:
        """Return bytes of the elements; whole elements are read and cut."""
        width = self._dtype.itemsize
        low, high = first // width, -(-last // width)
        if self._elements.flags.c_contiguous:
            chosen = self._elements.reshape(-1)[low:high]
        else:
            chosen = self._elements.flat[low:high]
        return chosen.astype(self._dtype, copy=False).tobytes()[first - low * width : last - low * width]

    def _let_go(self, first: int, last: int) -> None:
        """Release the memory of the part of a mapped file that was read; otherwise it would accumulate."""
        begin = (self._map_offset + first) // mmap.PAGESIZE * mmap.PAGESIZE
        end = (self._map_offset + last) // mmap.PAGESIZE * mmap.PAGESIZE
        if self._map is not None and end > begin:
            self._map.madvise(mmap.MADV_DONTNEED, begin, end - begin)

    def _tag(self, array: NDArray[Any], identity: str) -> str:
        """Return the tag: a hash of the identity, of the file behind the array, and of samples of its content.

        A hash of the whole content would read a large tensor twice.
        """
        digest = hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=16)
        digest.update(self._header)
        name = getattr(array, "filename", None)
        if name is not None:
            try:
                status = Path(name).stat()
            except OSError:
                pass  # its name is gone, its content is not
            else:
                digest.update(repr((status.st_ino, status.st_size, status.st_mtime_ns)).encode())
        data_bytes = self.size_bytes - len(self._header)
        step = max(_SAMPLE_BYTES, data_bytes // _SAMPLES)
        for first in range(0, data_bytes, step):
            digest.update(self._data(first, min(first + _SAMPLE_BYTES, data_bytes)))
        return f'"{digest.hexdigest()}"'


def _map_behind(array: NDArray[Any]) -> tuple[mmap.mmap | None, int]:
    """Return the file mapping that contains an array unchanged, and the offset of the array in it."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, mmap.mmap) or not array.flags.c_contiguous or not memoryview(owner).readonly:
        return None, 0
    return owner, array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data


@dataclass(frozen=True)
class _Part:
    """The bytes of a file to send: from `start` up to `end`."""

    status: int
    start: int
    end: int


class RangeError(InputError):
    """The requested range lies outside of the file."""

    code = "range-invalid"


class TensorFileResponse(Response):
    """A response that sends a file, or the requested range of it, piece by piece.

    Parameters
    ----------
    file : TensorFile
    request_headers : Headers
        Headers of the request: Range, If-Range, If-None-Match.
    headers : dict
        Further headers of the response.

    Raises
    ------
    RangeError
        The range lies outside of the file.
    """

    def __init__(self, file: TensorFile, request_headers: Headers, headers: dict[str, str]) -> None:
        self._file = file
        self._part = _chosen_part(request_headers, file)
        headers = {**headers, "ETag": file.tag, "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"}
        if self._part.status == 206:
            headers["Content-Range"] = f"bytes {self._part.start}-{self._part.end - 1}/{file.size_bytes}"
        if self._part.status != 304:
            headers["Content-Length"] = str(self._part.end - self._part.start)
        super().__init__(status_code=self._part.status, headers=headers, media_type=MEDIA_TYPES["npy"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; stop if the client disconnects, or accepts nothing for long."""
        start: Message = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        gone = asyncio.ensure_future(_gone(receive))
        try:
            if scope["method"] != "HEAD":
                await self._send_data(send, gone)
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_data(self, send: Send, gone: asyncio.Future[None]) -> None:
        position = self._part.start
        while position < self._part.end and not gone.done():
            following = min(position + PIECE_BYTES, self._part.end)
            body = await asyncio.to_thread(self._file.read, position, following)
            await asyncio.wait_for(send({"type": "http.response.body", "body": body, "more_body": True}), _STALLED_S)
            position = following
        if position < self._part.end:
            raise ClientDisconnect


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _chosen_part(request_headers: Headers, file: TensorFile) -> _Part:
    whole = _Part(200, 0, file.size_bytes)
    if file.tag in (tag.strip() for tag in request_headers.get("if-none-match", "").split(",")):
        return _Part(304, 0, 0)
    if request_headers.get("if-range", file.tag) != file.tag:
        return whole  # the client has part of another version
    match = _RANGE.fullmatch(request_headers.get("range", "").replace(" ", ""))
    if match is None:
        return whole  # no range, or several, or another unit: HTTP allows to send all
    first, last = (int(number) if number else None for number in match.groups())
    if first is None:
        if last is None:
            return whole
        start, end = max(file.size_bytes - last, 0), file.size_bytes
    elif last is not None and last < first:
        return whole  # invalid according to HTTP, so ignored
    else:
        start, end = first, file.size_bytes if last is None else min(last + 1, file.size_bytes)
    if start >= end:
        raise RangeError(f"the file has {file.size_bytes:,} bytes; {match[0]} lies outside of it")
    return _Part(206, start, end)


def file_name(address: TensorAddress) -> str:
    """Return the file name for the npy file of a tensor; only safe characters of the node's name are kept."""
    node = _UNSAFE.sub("_", address.node.rpartition("/")[2])[-100:].lstrip(".") or "tensor"
    return f"{node}.{address.io}.{address.slot}.rank-{address.rank}.step-{address.step}.npy"
