"""Convert the private layouts of Ascend devices to the layout of the host.

A device splits an axis in two (``C`` into ``C1`` blocks of ``C0``), reorders the parts and pads the last block. So
every layout is described by a `HostLayout`: the device axes, outermost first, that make up each host axis. Decoding is
then a copy between two strided views, at once or block by block, for any layout.

The layouts (from the public CANN documentation and MindSpore's format transfer):

================ ============================== =========================
device format    device axes                    host axes
================ ============================== =========================
NC1HWC0 (_C04)   N C1 H W C0 (C0 = 4 for _C04)  N C H W
NDC1HWC0         N D C1 H W C0                  N C D H W
FRACTAL_Z        C1·H·W N1 N0 C0                N C H W
FRACTAL_Z_3D     D·C1·H·W N1 N0 C0              N C D H W
FRACTAL_NZ       … W1 H1 H0 W0                  … H W
C1HWNCoC0        C1 H W N Co C0, with Co = C0   N C H W
================ ============================== =========================

``C0`` is 16, or 32 for 8-bit types; it is always taken from the device shape. A grouped FRACTAL_Z (groups in the
``sub_format`` field) packs several groups side by side into one block of 16 by C0.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

Shape = tuple[int, ...]
Range = tuple[int, int]

CUBE_ROWS = 16
"""Rows of one block of the matrix unit, to which a grouped FRACTAL_Z aligns output channels."""


@dataclass(frozen=True, slots=True)
class HostLayout:
    """The positions of the elements of a host tensor in a device buffer.

    Attributes
    ----------
    host_format : str
        "NCHW", "NCDHW" or "ND".
    host_shape : tuple of int
        Shape of the decoded tensor, as the framework sees it.
    work_shape : tuple of int
        The same elements with the axes of the host format (a bias of shape (C,) is (1, C, 1, 1)).
    split_shape : tuple of int
        Shape of the device buffer with all axes separate.
    axes : tuple of tuple of int
        For each axis of ``work_shape`` the axes of ``split_shape`` that it consists of, outermost first.
    diagonal : bool
        Whether the last two device axes are equal and only their diagonal contains values (C1HWNCoC0).
    groups : int
        Number of convolution groups; if above 1, the first device axis counts bundles of ``bundle`` groups.
    bundle : int
        Number of groups that share a block.
    """

    host_format: str
    host_shape: Shape
    work_shape: Shape
    split_shape: Shape
    axes: tuple[tuple[int, ...], ...]
    diagonal: bool = False
    groups: int = 1
    bundle: int = 1


def host_layout(
    device_format: str, device_shape: Sequence[int], host_shape: Sequence[int], groups: int = 1
) -> HostLayout:
    """Return how a device buffer maps to a host tensor; nothing is read or allocated.

    Parameters
    ----------
    device_format : str
        One of `DECODABLE_FORMATS`.
    device_shape, host_shape : sequence of int
        Shape of the buffer on the device, and of the tensor in the framework.
    groups : int
        Convolution groups of a FRACTAL_Z buffer (``sub_format`` of the header); 0 and 1 mean none.

    Raises
    ------
    InputError
        If the format has no decoder, or the two shapes do not match.
    """
    plan = _PLANS.get(device_format)
    if plan is None:
        raise InputError(
            f"the device format {device_format} has no decoder; known: {', '.join(sorted(DECODABLE_FORMATS))}"
        )
    device, host = tuple(device_shape), tuple(host_shape)
    if groups > 1 and device_format == "FRACTAL_Z":
        layout = _plan_grouped_fractal_z(device, host, groups)
    elif groups > 1 and device_format == "FRACTAL_Z_3D":
        raise InputError(f"FRACTAL_Z_3D with {groups} groups has no decoder")
    else:
        layout = plan(device, host)
    if layout is None:
        raise InputError(f"a {device_format} buffer of shape {device} cannot hold a tensor of shape {host}")
    return layout


def decode(device: NDArray[Any], layout: HostLayout) -> NDArray[Any]:
    """Copy a device buffer into a new host tensor.

    Parameters
    ----------
    device : ndarray
        The buffer; any shape with as many elements as ``layout.split_shape``.
    layout : HostLayout
        From `host_layout`.

    Returns
    -------
    ndarray
        Contiguous, of shape ``layout.host_shape`` and the buffer's dtype, without padding.

    Raises
    ------
    InputError
        If the number of elements differs from the layout's.
    """
    view = _device_view(device, layout)
    host = np.empty(layout.host_shape, device.dtype)
    _copy_block(view, layout, [(0, size) for size in layout.work_shape], host.reshape(layout.work_shape))
    return host


def decode_blocks(device: NDArray[Any], layout: HostLayout, elements: int) -> Iterator[NDArray[Any]]:
    """Decode a buffer piece by piece, in the order of the host tensor, with bounded memory.

    Yields
    ------
    ndarray
        One-dimensional new array, at most ``elements`` long. Concatenated, they are the flattened host tensor.

    Raises
    ------
    InputError
        If the number of elements differs from the layout's.
    """
    view = _device_view(device, layout)
    for ranges in _block_ranges(layout.work_shape, max(elements, 1)):
        block = np.empty([stop - start for start, stop in ranges], device.dtype)
        _copy_block(view, layout, ranges, block)
        yield block.reshape(-1)


def _device_view(device: NDArray[Any], layout: HostLayout) -> NDArray[Any]:
    if device.size != math.prod(layout.split_shape):
        raise InputError(f"a buffer of {device.size} elements does not fill a device shape of {layout.split_shape}")
    view = device.reshape(layout.split_shape)
    return np.diagonal(view, axis1=view.ndim - 2, axis2=view.ndim - 1) if layout.diagonal else view


def _block_ranges(shape: Shape, elements: int) -> Iterator[list[Range]]:
    """Cut a shape into boxes of at most ``elements`` that follow each other in C order."""
    if 0 in shape:
        return
    axis = next((k for k in range(len(shape)) if math.prod(shape[k + 1 :]) <= elements), 0)
    rows = max(elements // math.prod(shape[axis + 1 :]), 1)
    tail = [(0, size) for size in shape[axis + 1 :]]
    for index in itertools.product(*(range(size) for size in shape[:axis])):
        head = [(i, i + 1) for i in index]
        for start in range(0, shape[axis], rows):
            yield [*head, (start, min(start + rows, shape[axis])), *tail]


def _copy_block(view: NDArray[Any], layout: HostLayout, ranges: Sequence[Range], out: NDArray[Any]) -> None:
    """Copy the box ``ranges`` of the host tensor into ``out``, which has the box's shape."""
    if layout.groups == 1:
        _copy_box(view, layout.axes, ranges, out)
        return
    rows_per_group = layout.work_shape[0] // layout.groups
    channels = layout.work_shape[1]
    (first, last), (low, high), *rest = ranges
    for group in range(first // rows_per_group, -(-last // rows_per_group)):
        start = max(first, group * rows_per_group)
        stop = min(last, (group + 1) * rows_per_group)
        index = group % layout.bundle
        row = index * rows_per_group - group * rows_per_group
        box = [(start + row, stop + row), (index * channels + low, index * channels + high), *rest]
        _copy_box(view[group // layout.bundle], layout.axes, box, out[start - first : stop - first])


def _copy_box(
    view: NDArray[Any], axes: tuple[tuple[int, ...], ...], ranges: Sequence[Range], out: NDArray[Any]
) -> None:
    """Copy a box whose axes may start and end inside device blocks; it is cut into pieces at block boundaries."""
    ordered = view.transpose([axis for part in axes for axis in part])
    pieces = [
        list(_pieces(*span, view.shape[part[1]] if len(part) == 2 else None))
        for span, part in zip(ranges, axes, strict=True)
    ]
    for combination in itertools.product(*pieces):
        source = ordered[tuple(part for piece in combination for part in piece.device)]
        target = out[tuple(piece.host for piece in combination)]
        # Splitting an axis never copies, so this writes to `out`.
        target.reshape(source.shape)[...] = source


@dataclass(frozen=True, slots=True)
class _Piece:
    host: slice
    device: tuple[slice, ...]


def _pieces(start: int, stop: int, inner: int | None) -> Iterator[_Piece]:
    """Cut one host range where it crosses device blocks of ``inner``: a head, the whole blocks, a tail."""
    if inner is None:
        yield _Piece(slice(0, stop - start), (slice(start, stop),))
        return
    position = start
    while position < stop:
        block, offset = divmod(position, inner)
        whole = (stop - position) // inner if offset == 0 else 0
        length = whole * inner if whole else min(inner - offset, stop - position)
        inside = slice(0, inner) if whole else slice(offset, offset + length)
        yield _Piece(slice(position - start, position - start + length), (slice(block, block + max(whole, 1)), inside))
        position += length


def _blocks(size: int, block: int) -> int:
    return -(-size // block)


def _pad_to_nchw(shape: Shape) -> Shape | None:
    """Return a shape of up to four axes as N, C, H, W: a vector is C; a matrix N, C; three axes N, C, H."""
    match shape:
        case ():
            return (1, 1, 1, 1)
        case (c,):
            return (1, c, 1, 1)
        case (n, c):
            return (n, c, 1, 1)
        case (n, c, h):
            return (n, c, h, 1)
        case (_, _, _, _):
            return shape
    return None


def _format_of(host: Shape) -> str:
    return {4: "NCHW", 5: "NCDHW"}.get(len(host), "ND")


def _plan_nc1hwc0(device: Shape, host: Shape) -> HostLayout | None:
    nchw = _pad_to_nchw(host)
    if nchw is None or len(device) != 5 or device[4] < 1:
        return None
    n, c, h, w = nchw
    if device[:4] != (n, _blocks(c, device[4]), h, w):
        return None
    return HostLayout(_format_of(host), host, nchw, device, ((0,), (1, 4), (2,), (3,)))


def _plan_ndc1hwc0(device: Shape, host: Shape) -> HostLayout | None:
    if len(host) != 5 or len(device) != 6 or device[5] < 1:
        return None
    n, c, d, h, w = host
    if device[:5] != (n, d, _blocks(c, device[5]), h, w):
        return None
    return HostLayout("NCDHW", host, host, device, ((0,), (2, 5), (1,), (3,), (4,)))


def _plan_fractal_z(device: Shape, host: Shape) -> HostLayout | None:
    if len(host) != 4 or len(device) != 4 or min(device[2], device[3]) < 1:
        return None
    n, c, h, w = host
    _, n1, n0, c0 = device
    c1 = _blocks(c, c0)
    if device != (c1 * h * w, _blocks(n, n0), n0, c0):
        return None
    return HostLayout("NCHW", host, host, (c1, h, w, n1, n0, c0), ((3, 4), (0, 5), (1,), (2,)))


def _plan_grouped_fractal_z(device: Shape, host: Shape, groups: int) -> HostLayout | None:
    if len(host) != 4 or len(device) != 4 or min(device[2], device[3]) < 1:
        return None
    n, c, h, w = host
    _, n1, n0, c0 = device
    if n % groups or not n or not c:
        return None
    rows = n // groups
    bundle = min(math.lcm(math.lcm(c, c0) // c, math.lcm(rows, CUBE_ROWS) // rows), groups)
    bundles = _blocks(groups, bundle)
    c1 = _blocks(bundle * c, c0)
    if device != (bundles * c1 * h * w, _blocks(bundle * rows, n0), n0, c0):
        return None
    split = (bundles, c1, h, w, n1, n0, c0)
    return HostLayout("NCHW", host, host, split, ((3, 4), (0, 5), (1,), (2,)), groups=groups, bundle=bundle)


def _plan_fractal_z_3d(device: Shape, host: Shape) -> HostLayout | None:
    if len(host) != 5 or len(device) != 4 or min(device[2], device[3]) < 1:
        return None
    n, c, d, h, w = host
    _, n1, n0, c0 = device
    c1 = _blocks(c, c0)
    if device != (d * c1 * h * w, _blocks(n, n0), n0, c0):
        return None
    return HostLayout("NCDHW", host, host, (d, c1, h, w, n1, n0, c0), ((4, 5), (1, 6), (0,), (2,), (3,)))


def _plan_fractal_nz(device: Shape, host: Shape) -> HostLayout | None:
    if not host or len(device) < 4 or min(device[-2], device[-1]) < 1:
        return None
    matrices = host if len(host) > 1 else (1, *host)
    h, w = matrices[-2:]
    w1, h1, h0, w0 = device[-4:]
    if device[:-4] != matrices[:-2] or (w1, h1) != (_blocks(w, w0), _blocks(h, h0)):
        return None
    count = math.prod(matrices[:-2])
    return HostLayout(_format_of(host), host, (count, h, w), (count, w1, h1, h0, w0), ((0,), (2, 3), (1, 4)))


def _plan_c1hwncoc0(device: Shape, host: Shape) -> HostLayout | None:
    if len(host) != 4 or len(device) != 6 or device[5] < 1:
        return None
    n, c, h, w = host
    c0 = device[5]
    if device != (_blocks(c, c0), h, w, n, c0, c0):
        return None
    return HostLayout("NCHW", host, host, device, ((3,), (0, 4), (1,), (2,)), diagonal=True)


_PLANS: dict[str, Callable[[Shape, Shape], HostLayout | None]] = {
    "NC1HWC0": _plan_nc1hwc0,
    "NC1HWC0_C04": _plan_nc1hwc0,
    "NDC1HWC0": _plan_ndc1hwc0,
    "FRACTAL_Z": _plan_fractal_z,
    "FRACTAL_Z_3D": _plan_fractal_z_3d,
    "FRACTAL_NZ": _plan_fractal_nz,
    "C1HWNCoC0": _plan_c1hwncoc0,
}

DECODABLE_FORMATS = frozenset(_PLANS)
"""Device formats that `host_layout` supports."""
