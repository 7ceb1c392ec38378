"""The compiled kernels, where they are: an extension that is built with the package, for several sets of instructions.

It takes the best one that the processor has. Where it was not built, or does not run, NumPy does the same (`portable`)
at a fraction of the speed. ``$TENSIGHT_KERNELS`` changes that: ``numpy`` never uses compiled kernels, ``compiled``
refuses to go on without them, and the name of a set of instructions (`instruction_sets`) takes that one.
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
    """The extension ``tensight.tensors._kernels``. Addresses are of memory that stays there meanwhile.

    Kinds of elements are indices in `elements.ELEMENT_NAMES`; rows are described in `layout`.
    """

    def scan(self, kind: int, address: int, count: int, first_block: int, reals: int, counts: int, /) -> None:
        """Write the totals of elements to a row; of large tensors without the interpreter lock."""
        ...

    def scan_ranges(
        self, kind: int, address: int, count: int, first_block: int, reals: int, counts: int, ranges: int, many: int, /
    ) -> None:
        """Do that, and write behind the counts how many values are in each range, (many, 2) float64, both inside."""
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
        """Write the totals of at most a segment to a row, by the threads of a team (`shared_scan.Team`) or by this one.

        ``axes`` are length and stride, in elements, of each axis of strided elements from the first on.
        """
        ...

    def instances(self, objects: list[object], kinds: tuple[type[_T], ...], /) -> list[_T]:
        """Return the objects whose class is one of some, or derived from one; none of them is asked anything."""
        ...

    def Rows(  # noqa: N802 - a class
        self, reals: int, counts: int, iterations: int, codes: int, exponents: int, shapes: list[tuple[int, ...]], /
    ) -> CompiledRows:
        """Return what writes rows, given the addresses of their columns (int64 but for the reals) and their shapes."""
        ...

    def Kept(  # noqa: N802 - a class
        self,
        values: dict[int, tuple[Any, int, int, bool]],
        identities: dict[int, int],
        copied: set[int],
        budget: int,
        /,
    ) -> Kept:
        """Return the books of values that are kept by reference; see `agents.retention.Retention`."""
        ...

    def compare(
        self, kind: int, current: int, previous_kind: int, previous: int, count: int, changes: int, atol: float, /
    ) -> None:
        """Write how elements differ from those before, `layout.CHANGES` float64."""
        ...

    def has_non_finite(self, kind: int, address: int, count: int, parallel: int, thread: int, threads: int, /) -> bool:
        """Return whether an element is NaN or infinite; of large tensors a team finds out (`shared_scan.Team`)."""
        ...

    def instruction_sets(self) -> list[str]:
        """Return the names of those that this processor has and this build knows, the best last."""
        ...

    def choose(self, name: str | None, /) -> str:
        """Use the kernels for a set of instructions, or the best; return its name. ValueError if it is not there."""
        ...


class CompiledRows(Protocol):
    """The type ``Rows`` of the extension.

    Attributes
    ----------
    ready : int
        How many rows there are.
    iteration : int
        That is written beside a row.
    """

    ready: int
    iteration: int

    def set_team(self, parallel: int, thread: int, threads: int, /) -> None:
        """Have a team (`shared_scan.Team`) scan what is large; zeros for none."""
        ...

    def write(
        self, slot_id: int, kind: int, address: int, count: int, first_block: int, shape: tuple[int, ...], /, *axes: int
    ) -> bool:
        """Write totals, kind, shape and iteration of elements to the row of a slot.

        False where that is not enough: there is no such row, there is more than a segment or than `layout.MOST_AXES`,
        or squares leave the range of float64 (then the totals are written).
        """
        ...

    def set_tensors(self, types: tuple[type, ...], kinds: Mapping[Any, int], /) -> None:
        """Say which tensors `write_tensor` reads: of which types, and the kinds of their elements by dtype (a dict)."""
        ...

    def write_tensor(self, slot_id: int, first_block: int, tensor: object, /) -> bool:
        """Write the row of a slot from a tensor that answers as PyTorch's do.

        False, and nothing is written, where it is of another type or dtype, on another device, its memory was given
        back, or its elements do not lie there as they are; and where `write` would not do.
        """
        ...

    def observer(self, seen: list[int], otherwise: Callable[..., None], books: Kept | None, /) -> Observer:
        """Return what observes tensors that `write_tensor` can read: writes rows, or finds that they are finite.

        Their slot ids are added to ``seen``, and those of which a value is wanted to the books. Every other one goes to
        ``otherwise``: also those that are not finite, are in the books already, or are to be copied.
        """
        ...

    def copy(self, source: int, target: int, shape: tuple[int, ...] | None, /) -> bool:
        """Write the row of a slot to that of another; the shape may be another one. False if there is no such row."""
        ...


class Kept(Protocol):
    """The type ``Kept`` of the extension: the values of a step, and what they need.

    Attributes
    ----------
    bytes : int
        Of all values that are kept.
    """

    bytes: int

    def begin(self, values: dict[int, tuple[Any, int, int, bool]], /) -> None:
        """Make entries in another mapping from now on; of no tensor it is known that it is kept."""
        ...


class Observer(Protocol):
    """The type ``Observer`` of the extension."""

    def observe(self, slot_id: int, tensor: object, need: int, same: int | None = None, /) -> None:
        """Look at a tensor, as `agents.agent.Agent.observe` does."""
        ...


class _State:
    """What this process uses: kernels, and the setting by which they were chosen."""

    kernels: Kernels | None = None
    setting: str | None = None


def kernels() -> Kernels | None:
    """Return the compiled kernels, None if NumPy is to do their work.

    Raises
    ------
    InputError
        ``$TENSIGHT_KERNELS`` asks for what is not there.
    """
    setting = os.environ.get("TENSIGHT_KERNELS") or "auto"
    if setting != _State.setting:
        _State.kernels = _chosen(setting)
        _State.setting = setting
    return _State.kernels


def instruction_sets() -> list[str]:
    """Return the sets of instructions that this processor has and this build knows, the best last."""
    built = _built()
    return built.instruction_sets() if built is not None else []


def description() -> str:
    """Return in a word or two what scans tensors: a set of instructions, or NumPy and why."""
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
