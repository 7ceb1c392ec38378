"""The compiled kernels, an extension that is built with the package for several instruction sets.

The best instruction set of the processor is used. If the extension was not built, or cannot be loaded, NumPy does the
same (`portable`) at a fraction of the speed. ``$TENSIGHT_KERNELS`` changes that: ``numpy`` never uses compiled kernels,
``compiled`` raises without them, and the name of an instruction set (`instruction_sets`) selects it.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")


class Kernels(Protocol):
    """The extension ``tensight.tensors._kernels``. Memory at addresses must stay valid during a call.

    Kinds of elements are indices in `elements.ELEMENT_NAMES`; rows are described in `layout`.
    """

    def scan(self, kind: int, address: int, count: int, first_block: int, reals: int, counts: int, /) -> None:
        """Write the totals of elements to a row; large tensors are scanned without holding the GIL."""
        ...

    def scan_ranges(
        self, kind: int, address: int, count: int, first_block: int, reals: int, counts: int, ranges: int, many: int, /
    ) -> None:
        """Scan, and write after the counts how many values are in each range, (many, 2) float64, both inclusive."""
        ...

    def scan_shared(
        self,
        parallel: int,
        thread: int,
        threads: int,
        kind: int,
        address: int,
        count: int,
        first_block: int,
        reals: int,
        counts: int,
        /,
        *axes: int,
    ) -> None:
        """Write the totals of at most a segment to a row, with a team of threads (`shared_scan.Team`) or this thread.

        ``axes`` are length and stride, in elements, of each axis of strided elements from the first on.
        """
        ...

    def scan_files(
        self,
        paths: bytes,
        count: int,
        nameless: int,
        buffer: int,
        buffer_bytes: int,
        files: int,
        reals: int,
        counts: int,
        ranges: int,
        many: int,
        /,
    ) -> None:
        """Scan npy files without holding the GIL, and write a row of totals for each.

        ``paths`` are ended by a zero byte each. ``nameless`` are the kinds (int64) of elements whose header contains
        only their size, -1 if unknown. Each file is read into the buffer. For each file, ``files`` receives the kind
        of its elements, its number of dimensions, and at most `layout.MOST_DIMENSIONS` of them (int64); the counts are
        followed by one for each range, as in `scan_ranges`. The kind is -1, and the totals mean nothing, if the file
        needs more: it is missing, damaged, larger than the buffer or than a segment, has another header than NumPy
        writes on this machine, or squares leave the range of float64.
        """
        ...

    def digest_folder(self, path: bytes, /) -> int:
        """Return a number of 64 bits that changes with name, size and time of any entry of a folder.

        Raises OSError if the folder cannot be read.
        """
        ...

    def list_folder(self, path: bytes, /) -> tuple[list[tuple[str, int, int]], list[str]]:
        """Return name, size and time (ns) of the regular files of a folder, sorted by name, and the other names.

        Files whose names are not ASCII are among the others, and names that no longer exist may be. Raises OSError.
        """
        ...

    def instances(self, objects: list[object], kinds: tuple[type[_T], ...], /) -> list[_T]:
        """Return the objects whose class is one of the types, or derived from one, without running code of theirs."""
        ...

    def Rows(  # noqa: N802 - a class
        self, reals: int, counts: int, iterations: int, codes: int, exponents: int, shapes: list[tuple[int, ...]], /
    ) -> CompiledRows:
        """Return a writer of rows, given the addresses of their columns (int64 except the reals) and their shapes."""
        ...

    def Kept(  # noqa: N802 - a class
        self,
        values: dict[int, tuple[Any, int, bool, Any, Any]],
        identities: dict[int, int],
        copied: set[int],
        storages: dict[Any, tuple[int, int]],
        hold: Callable[[Any], tuple[Any, Any, int] | None],
        budget: int,
        /,
    ) -> Kept:
        """Return the records of values whose memory is kept; see `agents.core.retention.Retention`."""
        ...

    def compare(
        self, kind: int, current: int, previous_kind: int, previous: int, count: int, changes: int, atol: float, /
    ) -> None:
        """Write the totals of the comparison of elements with the previous ones, `layout.CHANGES` float64."""
        ...

    def has_non_finite(self, kind: int, address: int, count: int, parallel: int, thread: int, threads: int, /) -> bool:
        """Return whether an element is NaN or infinite; a team (`shared_scan.Team`) searches large tensors."""
        ...

    def instruction_sets(self) -> list[str]:
        """Return the names of the instruction sets that processor and build support, the best last."""
        ...

    def choose(self, name: str | None, /) -> str:
        """Use the kernels for an instruction set, by default the best; return its name. Raises ValueError if absent."""
        ...


class CompiledRows(Protocol):
    """The type ``Rows`` of the extension.

    Attributes
    ----------
    ready : int
        Number of rows.
    iteration : int
        The iteration that is written with each row.
    """

    ready: int
    iteration: int

    def set_team(self, parallel: int, thread: int, threads: int, /) -> None:
        """Set the team (`shared_scan.Team`) that scans large tensors; zeros for none."""
        ...

    def write(
        self, slot_id: int, kind: int, address: int, count: int, first_block: int, shape: tuple[int, ...], /, *axes: int
    ) -> bool:
        """Write totals, kind, shape and iteration of elements to the row of a slot.

        Returns False if more is needed: there is no such row, there are more elements than a segment or more axes than
        `layout.MOST_AXES`, or squares leave the range of float64 (then the totals are written).
        """
        ...

    def set_tensors(self, types: tuple[type, ...], kinds: Mapping[Any, int], /) -> None:
        """Set the types of tensors that `write_tensor` reads, and the kinds of their elements by dtype (a dict)."""
        ...

    def write_tensor(self, slot_id: int, first_block: int, tensor: object, /) -> bool:
        """Write the row of a slot from a tensor with PyTorch's interface.

        Returns False without writing if it is of another type or dtype, on another device, if its memory was released
        or does not contain its elements unchanged; and if `write` would return False.
        """
        ...

    def observer(self, seen: list[int], otherwise: Callable[..., None], books: Kept | None, /) -> Observer:
        """Return an observer of tensors that `write_tensor` can read: it writes rows, or checks that they are finite.

        Their slot ids are added to ``seen``, and values to keep to ``books``. All other tensors are passed to
        ``otherwise``, also those that are not finite, already in the books, or to be copied.
        """
        ...

    def copy(self, source: int, target: int, shape: tuple[int, ...] | None, /) -> bool:
        """Copy the row of a slot to that of another, optionally with another shape. False if there is no such row."""
        ...


class Kept(Protocol):
    """The type ``Kept`` of the extension: the kept values of a step, and their size.

    Attributes
    ----------
    bytes : int
        Size of all kept values.
    """

    bytes: int

    def begin(self, values: dict[int, tuple[Any, int, bool, Any, Any]], /) -> None:
        """Use another mapping for entries from now on, and forget which tensors are kept."""
        ...


class Observer(Protocol):
    """The type ``Observer`` of the extension."""

    def observe(self, slot_id: int, tensor: object, need: int, same: int | None = None, /) -> None:
        """Observe a tensor, as `agents.core.agent.Agent.observe` does."""
        ...


class _State:
    """The kernels in use in this process, and the setting that selected them."""

    kernels: Kernels | None = None
    setting: str | None = None


def kernels() -> Kernels | None:
    """Return the compiled kernels; None to use NumPy.

    Raises
    ------
    InputError
        ``$TENSIGHT_KERNELS`` selects kernels that do not exist.
    """
    setting = os.environ.get("TENSIGHT_KERNELS") or "auto"
    if setting != _State.setting:
        _State.kernels = _chosen(setting)
        _State.setting = setting
    return _State.kernels


def instruction_sets() -> list[str]:
    """Return the instruction sets that the processor and this build support, the best last."""
    built = _built()
    return built.instruction_sets() if built is not None else []


def description() -> str:
    """Return a short description of what scans tensors: an instruction set, or NumPy and the reason."""
    compiled = kernels()
    if compiled is not None:
        setting = _State.setting if _State.setting in instruction_sets() else None
        return compiled.choose(setting)
    return "NumPy, as TENSIGHT_KERNELS says" if _built() is not None else "NumPy, because the kernels were not built"


def _built() -> Kernels | None:
    try:
        built: Kernels = importlib.import_module("tensight.tensors._kernels")
    except ImportError:
        return None
    return built


def _chosen(setting: str) -> Kernels | None:
    if setting == "numpy":
        return None
    built = _built()
    if setting == "compiled" and built is None:
        raise InputError(
            "TENSIGHT_KERNELS is 'compiled', but this installation has no compiled kernels; reinstall tensight where "
            "there is a compiler, or unset the variable"
        )
    names = instruction_sets()
    if setting not in ("auto", "compiled", *names):
        choices = ", ".join(["auto", "numpy", "compiled", *names])
        raise InputError(f"TENSIGHT_KERNELS is {setting!r}; on this machine it can be {choices}")
    if built is not None:
        built.choose(setting if setting in names else None)
    return built
