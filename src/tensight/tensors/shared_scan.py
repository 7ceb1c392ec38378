"""The scan of one segment by several threads, and of elements that do not lie one after the other.

The threads are somebody else's: a framework has some that wait for work (`Team`). Results do not depend on how many
there are, nor on who did what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.tensors.native import Kernels


class Team(NamedTuple):
    """Threads as OpenMP has them: addresses of three C functions.

    Attributes
    ----------
    parallel : int
        ``void (*)(void (*function)(void *), void *argument, unsigned, unsigned)``: has each thread of the team call the
        function, and returns when they have. The last two arguments are 0.
    thread : int
        ``int (*)(void)``: number of the thread that asks, from 0, within `parallel`.
    threads : int
        ``int (*)(void)``: how many threads there are, within `parallel`.
    """

    parallel: int
    thread: int
    threads: int


ALONE = Team(0, 0, 0)
"""No team: who asks scans."""


def scan_shared(
    kernels: Kernels,
    team: Team | None,
    elements: tuple[int, int, int, int],
    row: tuple[int, int],
    axes: Sequence[tuple[int, int]] = (),
) -> None:
    """Scan a segment; the totals are those of the scan by one thread.

    Parameters
    ----------
    kernels : Kernels
    team : Team, optional
        Threads that help; None to scan alone.
    elements : (kind, address, number, block)
        Kind as `elements.ElementType.kind`; the block is the position in the tensor of the first one,
        `layout.NO_HASH` to leave out the hash.
    row : (address, address)
        Of the reals and the counts.
    axes : sequence of (length, stride), optional
        From the first axis to the last, strides in elements; at most `layout.MOST_AXES`. By default the elements lie
        one after the other.
    """
    kernels.scan_shared(*(team or ALONE), *elements, *row, *(number for axis in axes for number in axis))


def merged_axes(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return length and stride of the axes of a tensor, with those put together that go on where another ends."""
    axes: list[tuple[int, int]] = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if axes and axes[-1][1] == length * stride:
            axes[-1] = axes[-1][0] * length, stride
        else:
            axes.append((length, stride))
    return axes
