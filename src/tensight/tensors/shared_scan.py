"""Scan one segment with several threads, and strided elements.

The threads belong to the framework, which has idle threads (`Team`). Results do not depend on the number of threads,
nor on the distribution of work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.tensors.native import Kernels


class Team(NamedTuple):
    """A team of threads with the interface of OpenMP: addresses of three C functions.

    Attributes
    ----------
    parallel : int
        ``void (*)(void (*function)(void *), void *argument, unsigned, unsigned)``: calls the function in each thread of
        the team, and returns when all are done. The last two arguments are 0.
    thread : int
        ``int (*)(void)``: number of the calling thread within `parallel`, from 0.
    threads : int
        ``int (*)(void)``: number of threads within `parallel`.
    """

    parallel: int
    thread: int
    threads: int


ALONE = Team(0, 0, 0)
"""No team: the calling thread scans."""


def scan_shared(
    kernels: Kernels,
    team: Team | None,
    elements: tuple[int, int, int, int],
    row: tuple[int, int],
    axes: Sequence[tuple[int, int]] = (),
) -> None:
    """Scan a segment; the totals are equal to those of a scan by one thread.

    Parameters
    ----------
    kernels : Kernels
    team : Team, optional
        Threads that help; None to scan alone.
    elements : (kind, address, number, block)
        Kind as in `elements.ElementType.kind`; the block is the position of the first block in the tensor, or
        `layout.NO_HASH` to skip the hash.
    row : (address, address)
        Addresses of the reals and the counts.
    axes : sequence of (length, stride), optional
        From the first axis to the last, strides in elements; at most `layout.MOST_AXES`. By default the elements are
        contiguous.
    """
    kernels.scan_shared(*(team or ALONE), *elements, *row, *(number for axis in axes for number in axis))


def merged_axes(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return length and stride of the axes of a tensor, with adjacent contiguous axes merged."""
    axes: list[tuple[int, int]] = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if axes and axes[-1][1] == length * stride:
            axes[-1] = axes[-1][0] * length, stride
        else:
            axes.append((length, stride))
    return axes
