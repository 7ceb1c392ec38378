"""Files that an Ascend device dumps asynchronously: all inputs and outputs of one operator execution in one file.

A file is an 8-byte little-endian length, a protobuf header of that length, then the raw buffers: the inputs in
order, then the outputs in order. `read_dump_data` reads only the header. `read_slot` and `read_slot_segments` return
one tensor in the layout of the host; buffers that already have it are mapped, the others are decoded
(`tensight.dumps.device_formats`). No vendor toolkit is needed.
"""

from __future__ import annotations

import math
import mmap
import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError

from tensight.dumps import dump_data_pb2
from tensight.dumps.device_formats import HostLayout, decode, decode_blocks, host_layout
from tensight.dumps.storage import LocalFile, OpenFile, open_file
from tensight.errors import DumpError, InputError, TensorFileError
from tensight.tensors.narrow_types import BFLOAT16, narrow_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

Source: TypeAlias = "str | os.PathLike[str] | OpenFile | bytes"
"""A local path or fsspec URL, an open file of a storage, or bytes."""

IO = Literal["input", "output"]

MAX_HEADER_BYTES = 2**20
"""Longer headers are refused before they are read; a slot takes about 100 bytes."""

MAX_SLOTS = 16_384
"""More inputs and outputs than any operator has."""

_MAX_AXES = 32
"""The maximum of all supported versions of NumPy."""

_READ_UP_TO_BYTES = 256 * 2**10
"""Buffers up to this size are read, larger ones of local files mapped."""


# Numbers 26 and above come from newer CANN releases.
_DATA_TYPE_NAMES = (
    "UNDEFINED", "FLOAT", "FLOAT16", "INT8", "UINT8", "INT16", "UINT16", "INT32", "INT64", "UINT32", "UINT64",
    "BOOL", "DOUBLE", "STRING", "DUAL_SUB_INT8", "DUAL_SUB_UINT8", "COMPLEX64", "COMPLEX128", "QINT8", "QINT16",
    "QINT32", "QUINT8", "QUINT16", "RESOURCE", "STRING_REF", "DUAL", "VARIANT", "BF16", "INT4", "UINT1", "INT2",
    "UINT2", "COMPLEX32", "HIFLOAT8", "FLOAT8_E5M2", "FLOAT8_E4M3FN", "FLOAT8_E8M0", "FLOAT6_E3M2", "FLOAT6_E2M3",
    "FLOAT4_E2M1", "FLOAT4_E1M2",
)  # fmt: skip

_FORMAT_NAMES = (
    "NCHW", "NHWC", "ND", "NC1HWC0", "FRACTAL_Z", "NC1C0HWPAD", "NHWC1C0", "FSR_NCHW", "FRACTAL_DECONV", "C1HWNC0",
    "FRACTAL_DECONV_TRANSPOSE", "FRACTAL_DECONV_SP_STRIDE_TRANS", "NC1HWC0_C04", "FRACTAL_Z_C04", "CHWN",
    "FRACTAL_DECONV_SP_STRIDE8_TRANS", "HWCN", "NC1KHKWHWC0", "BN_WEIGHT", "FILTER_HWCK",
    "HASHTABLE_LOOKUP_LOOKUPS", "HASHTABLE_LOOKUP_KEYS", "HASHTABLE_LOOKUP_VALUE", "HASHTABLE_LOOKUP_OUTPUT",
    "HASHTABLE_LOOKUP_HITS", "C1HWNCoC0", "MD", "NDHWC", "FRACTAL_ZZ", "FRACTAL_NZ", "NCDHW", "DHWCN", "NDC1HWC0",
    "FRACTAL_Z_3D", "CN", "NC", "DHWNC", "FRACTAL_Z_3D_TRANSPOSE", "FRACTAL_ZN_LSTM", "FRACTAL_Z_G", "RESERVED",
    "ALL", "NULL", "ND_RNN_BIAS", "FRACTAL_ZN_RNN", "YUV", "YUV_A", "NCL", "FRACTAL_Z_WINO", "C1HWC0",
)  # fmt: skip

_NUMPY_TYPES: dict[str, Any] = {
    "FLOAT": np.float32, "FLOAT16": np.float16, "DOUBLE": np.float64, "BF16": BFLOAT16,
    "FLOAT8_E5M2": narrow_dtype("float8_e5m2"), "FLOAT8_E4M3FN": narrow_dtype("float8_e4m3fn"),
    "FLOAT8_E8M0": narrow_dtype("float8_e8m0fnu"), "COMPLEX64": np.complex64, "COMPLEX128": np.complex128,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "BOOL": np.bool_,
    # Quantised numbers as stored; the dump does not contain their scale.
    "QINT8": np.int8, "QINT16": np.int16, "QINT32": np.int32, "QUINT8": np.uint8, "QUINT16": np.uint16,
}  # fmt: skip

# Formats with the axes of the tensor, in the order of their name.
_HOST_FORMATS = frozenset({"NCHW", "ND", "NCDHW", "NC", "CN", "NCL", "MD"})


@dataclass(frozen=True, slots=True)
class AscendSlot:
    """One input or output in a dumped file.

    Attributes
    ----------
    io : {"input", "output"}
    index : int
        Number of the input or output of the operator.
    data_type : str
        Element type as the device names it, e.g. "BF16"; "UNKNOWN_99" for a number without a name.
    dtype : numpy.dtype or None
        Element type; None if NumPy has no equal (strings, packed bits).
    format : str
        Layout on the device, e.g. "NC1HWC0"; "UNKNOWN_77" for a number without a name.
    device_shape, original_shape : tuple of int
        Shape of the buffer, and of the tensor in the framework (empty if not given).
    offset, size_bytes : int
        Position and size of the buffer in the file.
    shape : tuple of int
        Shape of the array that `read_slot` returns.
    host_format : str
        Layout of the array that `read_slot` returns; equal to ``format`` if the device layout is kept.
    layout : HostLayout or None
        How to decode; None if the buffer is used unchanged.
    note : str
        Why the device layout is kept, or another remark; empty if there is none.
    problem : str
        Why the slot cannot be read; empty if it can.
    """

    io: IO
    index: int
    data_type: str
    dtype: np.dtype[Any] | None
    format: str
    device_shape: tuple[int, ...]
    original_shape: tuple[int, ...]
    offset: int
    size_bytes: int
    shape: tuple[int, ...]
    host_format: str
    layout: HostLayout | None = None
    note: str = ""
    problem: str = ""

    @property
    def label(self) -> str:
        """Return "input:0" and the like."""
        return f"{self.io}:{self.index}"


@dataclass(frozen=True, slots=True)
class DumpDataFile:
    """The header of a dumped file.

    Attributes
    ----------
    version, op_name : str
        As written by the device; ``op_name`` is the full name with slashes, or empty.
    dump_time : int
        As written by the device.
    slots : tuple of AscendSlot
        Inputs, then outputs.
    size_bytes : int
        Size of the file.
    """

    version: str
    op_name: str
    dump_time: int
    slots: tuple[AscendSlot, ...]
    size_bytes: int

    def slot(self, io: str, index: int) -> AscendSlot:
        """Return one slot. Raises InputError if it does not exist."""
        for slot in self.slots:
            if (slot.io, slot.index) == (io, index):
                return slot
        raise InputError(f"{self.op_name or 'the file'} has no {io} {index}; it has {len(self.slots)} slots")


def data_type_name(number: int) -> str:
    """Return the name of an element type of the header, e.g. 27 -> "BF16"; "UNKNOWN_99" for one without a name."""
    return _DATA_TYPE_NAMES[number] if 0 <= number < len(_DATA_TYPE_NAMES) else f"UNKNOWN_{number}"


def format_name(number: int) -> str:
    """Return the name of a layout of the header, e.g. 29 -> "FRACTAL_NZ"; "UNKNOWN_99" for one without a name."""
    return _FORMAT_NAMES[number] if 0 <= number < len(_FORMAT_NAMES) else f"UNKNOWN_{number}"


def read_dump_data(source: Source) -> DumpDataFile:
    """Read the header of an asynchronously dumped file.

    Parameters
    ----------
    source : path, URL, open file or bytes
        Only the first 8 + L bytes are read, L being the header's length.

    Returns
    -------
    DumpDataFile
        A slot that cannot be read (its data is cut off, its type unknown) has its ``problem`` set; the others can.

    Raises
    ------
    TensorFileError
        If the file cannot be opened or has no valid header.
    """
    with _opened(source) as file:
        length = int.from_bytes(file.read(0, 8), "little")
        if not 0 < length <= file.size_bytes - 8:
            raise TensorFileError(
                f"{file.path}: not an Ascend dump file: a header of {length:,} bytes does not fit a file of "
                f"{file.size_bytes:,}. It was probably cut off; dump this iteration again."
            )
        if length > MAX_HEADER_BYTES:
            raise TensorFileError(f"{file.path}: not an Ascend dump file: a header of {length:,} bytes is too long.")
        return _parse_header(file.read(8, length), file)


def read_slot(source: Source, slot: AscendSlot) -> NDArray[Any]:
    """Read one tensor in the layout of the host.

    Parameters
    ----------
    source : path, URL, open file or bytes
        The file that ``slot`` comes from.
    slot : AscendSlot
        From `read_dump_data`.

    Returns
    -------
    ndarray
        Read-only, of shape ``slot.shape``; mapped if a local file contains it in that layout (then it may be unaligned,
        because headers can have any length), else a new array.

    Raises
    ------
    TensorFileError
        If the slot cannot be read.
    """
    with _opened(source) as file:
        buffer = _buffer(file, slot)
        try:
            array = buffer.reshape(slot.shape) if slot.layout is None else decode(buffer, slot.layout)
        except MemoryError:
            raise TensorFileError(f"{file.path}: {slot.label}: too little memory for the shape {slot.shape}.") from None
    array.flags.writeable = False
    return array


def read_slot_segments(source: Source, slot: AscendSlot, elements: int) -> Iterator[NDArray[Any]]:
    """Read one tensor in pieces, in the order of its elements in the host's layout.

    Parameters
    ----------
    source, slot
        As for `read_slot`.
    elements : int
        Length of every piece but the last. An empty tensor has no pieces.

    Yields
    ------
    ndarray
        One-dimensional, contiguous, aligned. Only a few pieces are in memory at a time, for any size of the tensor.

    Raises
    ------
    TensorFileError
        If the slot cannot be read.
    """
    with _opened(source) as file:
        if slot.layout is None:
            yield from _plain_segments(file, slot, elements)
        else:
            yield from _equal_pieces(_decoded_blocks(file, slot, slot.layout, elements), elements)


def _parse_header(data: bytes, file: OpenFile) -> DumpDataFile:
    header = dump_data_pb2.DumpData()
    try:
        header.ParseFromString(data)
    except DecodeError:
        raise TensorFileError(
            f"{file.path}: not an Ascend dump file: the header is damaged. Remove it, or dump this iteration again."
        ) from None
    if len(header.input) + len(header.output) > MAX_SLOTS:
        raise TensorFileError(f"{file.path}: the header is damaged: it lists more than {MAX_SLOTS:,} tensors.")
    slots = []
    offset = 8 + len(data)
    tensors: list[tuple[IO, int, Any]] = [("input", i, tensor) for i, tensor in enumerate(header.input)]
    tensors += [("output", i, tensor) for i, tensor in enumerate(header.output)]
    for kind, index, tensor in tensors:
        slots.append(_slot(kind, index, tensor, offset, file.size_bytes))
        offset += tensor.size
    return DumpDataFile(header.version, header.op_name, header.dump_time, tuple(slots), file.size_bytes)


def _slot(kind: IO, index: int, tensor: Any, offset: int, file_size: int) -> AscendSlot:
    type_name, layout_name = data_type_name(tensor.data_type), format_name(tensor.format)
    slot = AscendSlot(
        io=kind,
        index=index,
        data_type=type_name,
        dtype=np.dtype(_NUMPY_TYPES[type_name]).newbyteorder("<") if type_name in _NUMPY_TYPES else None,
        format=layout_name,
        device_shape=tuple(tensor.shape.dim),
        original_shape=tuple(tensor.original_shape.dim),
        offset=offset,
        size_bytes=tensor.size,
        shape=tuple(tensor.shape.dim),
        host_format=layout_name,
    )
    if tensor.size > max(file_size - offset, 0):
        return replace(
            slot,
            problem=f"{tensor.size:,} bytes from byte {offset:,} do not fit the file's {file_size:,}; it is cut off, "
            "dump this iteration again",
        )
    if slot.dtype is None:
        return replace(slot, problem=f"elements of type {type_name} have no equal in NumPy")
    slot = _with_buffer_shape(slot, slot.dtype.itemsize)
    return slot if slot.problem or slot.note else _with_host_layout(slot, tensor.sub_format)


def _with_buffer_shape(slot: AscendSlot, itemsize: int) -> AscendSlot:
    """Determine the shape of the buffer without decoding, and whether the file contains enough elements."""
    held, rest = divmod(slot.size_bytes, itemsize)
    if rest:
        return replace(slot, problem=f"{slot.size_bytes:,} bytes are not a whole number of {itemsize}-byte elements")
    if (not slot.device_shape and held != 1) or not _is_usable(slot.device_shape):
        return replace(slot, shape=(held,), note="the file does not give a usable shape; shown flat")
    needed = math.prod(slot.device_shape)
    if needed > held:
        return replace(slot, problem=f"the shape {slot.device_shape} needs {needed:,} elements, the file has {held:,}")
    if needed < held:
        return replace(slot, note=f"the buffer holds {held - needed:,} elements more than its shape; they are left out")
    return slot


def _is_usable(shape: tuple[int, ...]) -> bool:
    """Return whether an array can have this shape: not a dynamic one (-1), nor an empty one with absurd other axes."""
    if len(shape) > _MAX_AXES or any(dim >= 2**63 for dim in shape):
        return False
    return 0 not in shape or math.prod(max(dim, 1) for dim in shape) < 2**56


def _with_host_layout(slot: AscendSlot, groups: int) -> AscendSlot:
    has_own_shape = bool(slot.original_shape) and _is_usable(slot.original_shape)
    if slot.format in _HOST_FORMATS:
        same_count = has_own_shape and math.prod(slot.original_shape) == math.prod(slot.device_shape)
        return replace(slot, shape=slot.original_shape) if same_count else slot
    if not slot.device_shape:
        return slot
    if not has_own_shape:
        return replace(slot, note=f"kept in the device layout {slot.format}: the tensor's own shape is not given")
    try:
        layout = host_layout(slot.format, slot.device_shape, slot.original_shape, groups)
    except InputError as error:
        return replace(slot, note=f"kept in the device layout {slot.format}: {error}")
    return replace(slot, shape=layout.host_shape, host_format=layout.host_format, layout=layout)


class _Bytes(OpenFile):
    """Bytes in memory with the interface of a file."""

    path = "these bytes"

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        part = self._data[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def _opened(source: Source) -> Iterator[OpenFile]:
    """Open a source, and close it again unless it was already open; all failures are raised as TensorFileError."""
    try:
        if isinstance(source, OpenFile):
            yield source
        else:
            with _Bytes(source) if isinstance(source, bytes) else open_file(os.fspath(source)) as file:
                yield file
    except TensorFileError:
        raise
    except DumpError as error:
        raise TensorFileError(str(error)) from None


def _buffer(file: OpenFile, slot: AscendSlot) -> NDArray[Any]:
    """Return the raw buffer of a slot as a flat array: mapped if the file is a large local one, else read."""
    dtype = _readable(file, slot)
    count = _elements(slot)
    size = count * dtype.itemsize
    if isinstance(file, LocalFile) and size > _READ_UP_TO_BYTES:
        # Accessing a mapped page beyond the end of the file would kill the process.
        if os.fstat(file.fileno()).st_size < slot.offset + size:
            raise _became_shorter(file, slot)
        try:
            return np.frombuffer(file.map(), dtype, count, slot.offset)
        except (OSError, ValueError) as error:
            raise TensorFileError(f"{file.path}: {slot.label}: cannot be mapped: {error}.") from None
    return _read_part(file, slot, dtype, 0, count)


def _read_part(file: OpenFile, slot: AscendSlot, dtype: np.dtype[Any], start: int, count: int) -> NDArray[Any]:
    data = file.read(slot.offset + start * dtype.itemsize, count * dtype.itemsize)
    if len(data) != count * dtype.itemsize:
        raise _became_shorter(file, slot)
    return np.frombuffer(data, dtype)


def _became_shorter(file: OpenFile, slot: AscendSlot) -> TensorFileError:
    return TensorFileError(f"{file.path}: {slot.label}: the file became shorter meanwhile; open the dump again.")


def _readable(file: OpenFile, slot: AscendSlot) -> np.dtype[Any]:
    if slot.problem or slot.dtype is None:
        raise TensorFileError(f"{file.path}: {slot.label}: {slot.problem}.")
    return slot.dtype


def _elements(slot: AscendSlot) -> int:
    return math.prod(slot.shape if slot.layout is None else slot.device_shape)


def _plain_segments(file: OpenFile, slot: AscendSlot, elements: int) -> Iterator[NDArray[Any]]:
    dtype, total = _readable(file, slot), _elements(slot)
    for start in range(0, total, elements):
        yield _read_part(file, slot, dtype, start, min(elements, total - start))


def _decoded_blocks(file: OpenFile, slot: AscendSlot, layout: HostLayout, elements: int) -> Iterator[NDArray[Any]]:
    buffer = _buffer(file, slot)
    mapping = getattr(buffer.base, "obj", None)
    for block in decode_blocks(buffer, layout, elements):
        yield block
        if isinstance(mapping, mmap.mmap):
            # Each block touches pages all over the buffer; without this the whole file would become resident.
            mapping.madvise(mmap.MADV_DONTNEED)


def _equal_pieces(blocks: Iterator[NDArray[Any]], elements: int) -> Iterator[NDArray[Any]]:
    """Cut and join arrays so that all but the last have ``elements`` elements."""
    held: list[NDArray[Any]] = []
    count = 0
    for block in blocks:
        held.append(block)
        count += block.size
        if count < elements:
            continue
        joined = np.concatenate(held) if len(held) > 1 else held[0]
        whole = count - count % elements
        for start in range(0, whole, elements):
            yield joined[start : start + elements]
        held, count = [joined[whole:]], count - whole
    if count:
        yield np.concatenate(held)
