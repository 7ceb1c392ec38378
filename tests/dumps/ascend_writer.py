"""Writes files as an Ascend device does, byte by byte from the format's description.

Shares no code with the reader: its own protobuf encoder, and every device layout packed by naive loops over elements.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

DATA_TYPES = {
    "float32": 1, "float16": 2, "int8": 3, "uint8": 4, "int16": 5, "uint16": 6, "int32": 7, "int64": 8, "uint32": 9,
    "uint64": 10, "bool": 11, "float64": 12, "complex64": 16, "complex128": 17, "bfloat16": 27,
}  # fmt: skip

FORMATS = {
    "NCHW": 0, "NHWC": 1, "ND": 2, "NC1HWC0": 3, "FRACTAL_Z": 4, "NC1HWC0_C04": 12, "C1HWNCoC0": 25, "FRACTAL_NZ": 29,
    "NCDHW": 30, "NDC1HWC0": 32, "FRACTAL_Z_3D": 33,
}  # fmt: skip


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number % 128 + 128)
        number //= 128
    out.append(number)
    return bytes(out)


def number_field(field: int, value: int) -> bytes:
    return b"" if value == 0 else varint(field << 3) + varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def shape_field(field: int, dims: Sequence[int]) -> bytes:
    packed = b"".join(varint(dim) for dim in dims)
    return bytes_field(field, bytes_field(1, packed) if dims else b"")


@dataclass
class Tensor:
    """One input or output as it goes into a file."""

    data: bytes
    data_type: int
    format: int
    shape: tuple[int, ...]
    original_shape: tuple[int, ...]
    sub_format: int = 0
    size: int | None = None

    def message(self, fields: dict[str, int]) -> bytes:
        size = len(self.data) if self.size is None else self.size
        return (
            number_field(fields["data_type"], self.data_type)
            + number_field(fields["format"], self.format)
            + shape_field(fields["shape"], self.shape)
            + number_field(fields["size"], size)
            + shape_field(fields["original_shape"], self.original_shape)
            + number_field(fields["sub_format"], self.sub_format)
        )


OUTPUT_FIELDS = {"data_type": 1, "format": 2, "shape": 3, "size": 6, "original_shape": 7, "sub_format": 8}
INPUT_FIELDS = {"data_type": 1, "format": 2, "shape": 3, "size": 5, "original_shape": 6, "sub_format": 7}


def dump_data(
    inputs: Iterable[Tensor] = (), outputs: Iterable[Tensor] = (), op_name: str = "Default/op", dump_time: int = 17
) -> bytes:
    """Return a whole file."""
    inputs, outputs = list(inputs), list(outputs)
    header = bytes_field(1, b"2.0") + number_field(2, dump_time)
    for tensor in outputs:
        header += bytes_field(3, tensor.message(OUTPUT_FIELDS))
    for tensor in inputs:
        header += bytes_field(4, tensor.message(INPUT_FIELDS))
    header += bytes_field(6, op_name.encode())
    # A field of a newer release, which readers must step over.
    header += bytes_field(7, bytes_field(1, b"attr") + bytes_field(2, b"value"))
    return struct.pack("<Q", len(header)) + header + b"".join(tensor.data for tensor in inputs + outputs)


def older_overflow_block(dha: int = 0, l2: int = 0, core: int = 32) -> bytes:
    block = bytearray(2048)
    block[0:48] = struct.pack("<6Q", 1, 2, 3, 0, 0, 0)
    block[128:176] = struct.pack("<6Q", 4, 5, 6, 0, 0, 0)
    block[256:304] = struct.pack("<6Q", 514, 563, 57, 0, 0x1008005B0000, 0x100800297000)
    block[512:520] = struct.pack("<Q", dha)
    block[768:776] = struct.pack("<Q", l2)
    block[1024:1048] = struct.pack("<3Q", 0x1008005AE000, 1, core)
    return bytes(block)


def newer_overflow_block(kind: int, fields: list[int], version: int = 0, valid: int = 1) -> bytes:
    return struct.pack("<6I", 0x5A5A5A5A, version, valid, kind, 0, 8 * len(fields)) + struct.pack(
        f"<{len(fields)}Q", *fields
    )


def overflow_file(*blocks: bytes) -> bytes:
    """The output's element type is undefined, as nobody needs it."""
    tensors = [Tensor(block, 0, 2, (len(block),), (len(block),)) for block in blocks]
    return dump_data(outputs=tensors, op_name="Node_OpDebug")


def host_tensor(array: np.ndarray[Any, Any], format_name: str = "ND") -> Tensor:
    """Wrap an array that the device keeps in the layout of the host."""
    return Tensor(array.tobytes(), DATA_TYPES[array.dtype.name], FORMATS[format_name], array.shape, array.shape)


def device_tensor(array: np.ndarray[Any, Any], format_name: str, c0: int, groups: int = 1) -> Tensor:
    """Pack an array of the host into a device layout."""
    device = pack_grouped_fractal_z(array, c0, groups) if groups > 1 else PACKERS[format_name](array, c0)
    return Tensor(
        device.tobytes(), DATA_TYPES[array.dtype.name], FORMATS[format_name], device.shape, array.shape,
        sub_format=groups if groups > 1 else 0,
    )  # fmt: skip


def up(size: int, block: int) -> int:
    return (size + block - 1) // block


def pack_nc1hwc0(host: np.ndarray[Any, Any], c0: int) -> np.ndarray[Any, Any]:
    n_, c_, h_, w_ = host.shape
    device = np.zeros((n_, up(c_, c0), h_, w_, c0), host.dtype)
    for n, c, h, w in itertools.product(range(n_), range(c_), range(h_), range(w_)):
        device[n, c // c0, h, w, c % c0] = host[n, c, h, w]
    return device


def pack_ndc1hwc0(host: np.ndarray[Any, Any], c0: int) -> np.ndarray[Any, Any]:
    n_, c_, d_, h_, w_ = host.shape
    device = np.zeros((n_, d_, up(c_, c0), h_, w_, c0), host.dtype)
    for n, c, d, h, w in itertools.product(range(n_), range(c_), range(d_), range(h_), range(w_)):
        device[n, d, c // c0, h, w, c % c0] = host[n, c, d, h, w]
    return device


def pack_fractal_z(host: np.ndarray[Any, Any], c0: int) -> np.ndarray[Any, Any]:
    n_, c_, h_, w_ = host.shape
    device = np.zeros((up(c_, c0) * h_ * w_, up(n_, 16), 16, c0), host.dtype)
    for n, c, h, w in itertools.product(range(n_), range(c_), range(h_), range(w_)):
        device[(c // c0) * h_ * w_ + h * w_ + w, n // 16, n % 16, c % c0] = host[n, c, h, w]
    return device


def pack_fractal_z_3d(host: np.ndarray[Any, Any], c0: int) -> np.ndarray[Any, Any]:
    n_, c_, d_, h_, w_ = host.shape
    c1_ = up(c_, c0)
    device = np.zeros((d_ * c1_ * h_ * w_, up(n_, 16), 16, c0), host.dtype)
    for n, c, d, h, w in itertools.product(range(n_), range(c_), range(d_), range(h_), range(w_)):
        row = ((d * c1_ + c // c0) * h_ + h) * w_ + w
        device[row, n // 16, n % 16, c % c0] = host[n, c, d, h, w]
    return device


def pack_fractal_nz(host: np.ndarray[Any, Any], c0: int) -> np.ndarray[Any, Any]:
    matrices = host.reshape((1, *host.shape)) if host.ndim == 1 else host
    *lead, h_, w_ = matrices.shape
    device = np.zeros((*lead, up(w_, c0), up(h_, 16), 16, c0), host.dtype)
    for index in np.ndindex(*matrices.shape):
        *where, h, w = index
        device[(*where, w // c0, h // 16, h % 16, w % c0)] = matrices[index]
    return device


def pack_c1hwncoc0(host: np.ndarray[Any, Any], c0: int) -> np.ndarray[Any, Any]:
    n_, c_, h_, w_ = host.shape
    device = np.zeros((up(c_, c0), h_, w_, n_, c0, c0), host.dtype)
    for n, c, h, w in itertools.product(range(n_), range(c_), range(h_), range(w_)):
        device[c // c0, h, w, n, c % c0, c % c0] = host[n, c, h, w]
    return device


def pack_grouped_fractal_z(host: np.ndarray[Any, Any], c0: int, groups: int) -> np.ndarray[Any, Any]:
    """Convolution weights of several groups: bundles of groups lie on the diagonal of one block each."""
    n_, c_, h_, w_ = host.shape
    out = n_ // groups
    by_channels = int(np.lcm(c_, c0)) // c_
    by_rows = int(np.lcm(out, 16)) // out
    bundle = min(int(np.lcm(by_channels, by_rows)), groups)
    bundles, c1_, n1_ = up(groups, bundle), up(bundle * c_, c0), up(bundle * out, 16)
    device = np.zeros((bundles * c1_ * h_ * w_, n1_, 16, c0), host.dtype)
    for g, n, c, h, w in itertools.product(range(groups), range(out), range(c_), range(h_), range(w_)):
        row = (g % bundle) * out + n
        channel = (g % bundle) * c_ + c
        first = (((g // bundle) * c1_ + channel // c0) * h_ + h) * w_ + w
        device[first, row // 16, row % 16, channel % c0] = host[g * out + n, c, h, w]
    return device


PACKERS: dict[str, Callable[[np.ndarray[Any, Any], int], np.ndarray[Any, Any]]] = {
    "NC1HWC0": pack_nc1hwc0,
    "NC1HWC0_C04": pack_nc1hwc0,
    "NDC1HWC0": pack_ndc1hwc0,
    "FRACTAL_Z": pack_fractal_z,
    "FRACTAL_Z_3D": pack_fractal_z_3d,
    "FRACTAL_NZ": pack_fractal_nz,
    "C1HWNCoC0": pack_c1hwncoc0,
}
