"""Whether there is room for what MindSpore dumps next: without room, MindSpore ends the training."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from tensight.agents.core.process.memory import free_bytes
from tensight.agents.mindspore.ring_folder import MEMORY_BACKED, free_on_disk
from tensight.errors import TensightError
from tensight.tensors.elements import ELEMENT_NAMES, dtype_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensight.agents.core.program import TracedNode
    from tensight.graph import OutputSlot

_MARGIN = 1.25
_GUESS_MARGIN = 1.5
"""Elements of tuples have no shape in a graph; estimates were at least 0.77 of what was written."""

_FILE_BYTES = 4096
"""Size of a file beside its elements: its header, and the unused rest of its last page."""

_EVERY_S = 0.2
"""Interval of checks of the free memory, each of which takes as long as a small step."""

_SIZES = {name: dtype_named(name).itemsize for name in ELEMENT_NAMES}
_LARGEST_SIZE = max(_SIZES.values())


class NoRoomError(TensightError):
    """There is no room for the dump of the next step."""


class RingRoom:
    """Estimates how much a step dumps.

    Parameters
    ----------
    folder : str
        Where MindSpore dumps.
    free_on_disk : callable (folder)
        Returns the free bytes on the disk of a folder.
    free_memory : callable
        Returns the free bytes of memory, for a folder in memory.
    """

    def __init__(
        self,
        folder: str,
        free_on_disk: Callable[[str], int | None] = free_on_disk,
        free_memory: Callable[[], int] = free_bytes,
    ) -> None:
        self._folder = folder
        self._is_in_memory = folder.startswith(MEMORY_BACKED)
        self._free_on_disk = free_on_disk
        self._free_memory = free_memory
        self._memory_bytes = 0
        self._needs: dict[int, float] = {}
        self._written: set[tuple[int, int]] = set()
        self._next_check = 0.0

    def guess(self, graph: int, nodes: Iterable[TracedNode]) -> None:
        """Estimate what a graph will write if all of its nodes are dumped, as far as their shapes are known."""
        sizes = [_size_bytes(slot) + _FILE_BYTES for node in nodes for slot in node.outputs]
        self._needs[graph] = sum(sizes) * _GUESS_MARGIN

    def note(self, graph: int, files: int, size_bytes: int) -> None:
        """Note what a launch of a graph has written; the largest launch counts."""
        if (graph, files) in self._written:
            return
        was_measured = any(number == graph for number, _ in self._written)
        self._written.add((graph, files))
        need = (size_bytes + files * _FILE_BYTES) * _MARGIN
        self._needs[graph] = max(need, self._needs[graph]) if was_measured else need

    def check(self) -> None:
        """Check that every graph can run once more.

        Raises
        ------
        NoRoomError
            There is no room for that.
        """
        needed, free = sum(self._needs.values()), self._free(self._free_on_disk(self._folder) or 0)
        if free < needed:
            raise NoRoomError(
                f"MindSpore is about to dump up to {_text(needed)} a step, and {self._folder} has room for"
                f" {_text(free)}; it would end the training when that is full. {self._advice()}, or have only gradients"
                " dumped (tensight run --partial-memory)"
            )

    def _free(self, on_disk: int) -> int:
        """Return how much may be written, given the free bytes on disk, which are fast to get."""
        if not self._is_in_memory:
            return on_disk
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + _EVERY_S
            self._memory_bytes = self._free_memory()
        return min(on_disk, self._memory_bytes)

    def _advice(self) -> str:
        if self._folder.startswith(MEMORY_BACKED):
            return f"Give {MEMORY_BACKED} and the container more memory (docker run --shm-size=8g)"
        return "Make room there, or set TMPDIR to a folder that has more"


def _size_bytes(slot: OutputSlot) -> int:
    if not slot.dtype or slot.shape is None or min(slot.shape, default=0) < 0:
        return 0
    return math.prod(slot.shape) * _SIZES.get(slot.dtype, _LARGEST_SIZE)


def _text(amount: float) -> str:
    return f"{amount / 2**20:,.1f} MiB"
