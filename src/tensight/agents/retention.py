"""The values of this and of the previous step, as long as they are not overwritten and memory suffices.

Values are kept by reference: nothing is copied while the training runs, its tensors just live longer. Each reference
comes with the tensor's version, so that a value that was overwritten in place is never shown as the earlier one. Values
of such slots are copied from then on, if requested (weights and optimizer states are overwritten in every step). If
there are too many values, the oldest are dropped, and only their statistics remain.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from tensight.agents.memory import free_bytes
from tensight.tensors.native import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.agents.reader import TensorReader
    from tensight.tensors.native import Kept

SHARE_OF_FREE = 0.1
"""Share of the memory free at the start that values may take."""

_CHECKED_AT_FIRST = 4
_CHECK_EVERY = 64
"""Steps in which values are checked for having been overwritten, which takes time for each of them."""


_Kept = tuple[Any, int, int, bool]
"""A tensor, its version, its size in bytes, and whether it is a copy, whose version has no meaning.

A plain tuple takes a fifth of the time of a named one, and there is one for every tensor of every step.
"""
_TENSOR, _VERSION, _SIZE, _IS_COPY = range(4)
_WRITTEN_OVER = -1
"""A version that no tensor has."""


class _Step:
    """The values of one step, the oldest first; a tensor in several slots counts once."""

    __slots__ = ("dropped", "others", "values")

    def __init__(self) -> None:
        self.values: OrderedDict[int, _Kept] = OrderedDict()
        self.others: dict[int, set[int]] = {}
        self.dropped: set[int] = set()


class _Books:
    """A substitute for `Kept` without compiled kernels, in which only `Retention` makes entries."""

    __slots__ = ("bytes", "identities")

    def __init__(self, identities: dict[int, int]) -> None:
        self.bytes = 0
        self.identities = identities

    def begin(self, values: dict[int, _Kept]) -> None:  # noqa: ARG002 - only `Retention` makes entries
        """Begin a step."""
        self.identities.clear()


class Retention:
    """Values of this and the previous step.

    For use by the training's thread, or by another one while that waits.

    Parameters
    ----------
    reader : TensorReader
        Of the framework's tensors.
    budget_bytes : int, optional
        For all values together; by default a tenth of the memory that is free now.
    wants_copies : callable (slot_id) -> bool, optional
        Whether the values of a slot are copied once the training has overwritten one of them in place; by default all
        are.

    Attributes
    ----------
    budget_bytes : int
    books : Kept or None
        Lets an observer keep values without a call of Python; None without compiled kernels.
    """

    def __init__(
        self, reader: TensorReader, budget_bytes: int | None = None, wants_copies: Callable[[int], bool] | None = None
    ) -> None:
        self.budget_bytes = int(free_bytes() * SHARE_OF_FREE) if budget_bytes is None else budget_bytes
        self._reader = reader
        self._wants_copies = wants_copies
        self._version_of = reader.version
        self._size_of = reader.size_bytes
        self._current = _Step()
        self._previous = _Step()
        self._by_identity: dict[int, int] = {}
        self._copied: set[int] = set()
        self._persistent: set[int] = set()
        self._spare: dict[int, Any] = {}
        self._steps = 0
        compiled = kernels()
        self.books: Kept | None = None
        if compiled is not None:
            self.books = compiled.Kept(self._current.values, self._by_identity, self._copied, self.budget_bytes)
        self._books = self.books or _Books(self._by_identity)

    @property
    def kept_bytes(self) -> int:
        """Size of the values that are kept now."""
        return self._books.bytes

    def keep(self, slot_id: int, tensor: Any) -> None:
        """Keep the value of a slot in this step, replacing its earlier one of the step."""
        values = self._current.values
        if slot_id in values:
            self._release(self._current, slot_id)
        identity = id(tensor)
        same = self._by_identity.get(identity)
        is_copied = slot_id in self._copied
        # Some readers must read a tensor to determine its version.
        version = 0 if is_copied and same is None else self._version_of(tensor)
        if same is not None and values[same][_VERSION] == version:
            values[slot_id] = (tensor, version, 0, False)
            self._current.others.setdefault(same, set()).add(slot_id)
            return
        size = self._size_of(tensor)
        if size is None:
            return
        if size > self.budget_bytes:
            self._current.dropped.add(slot_id)
            return
        copy = self._reader.copy(tensor, self._spare.pop(slot_id, None)) if is_copied else None
        if is_copied and copy is None:
            return
        books = self._books
        books.bytes += size
        if books.bytes > self.budget_bytes:
            self._make_room()
        if is_copied:
            values[slot_id] = (copy, 0, size, True)
        else:
            values[slot_id] = (tensor, version, size, False)
            self._by_identity[identity] = slot_id

    def same_as(self, tensor: Any) -> int | None:
        """Return a slot with this very tensor in this step, if it was not written to since.

        This is certain, because no other tensor can have the address of a kept one.
        """
        slot_id = self._by_identity.get(id(tensor))
        if slot_id is None or self._current.values[slot_id][_VERSION] != self._version_of(tensor):
            return None
        return slot_id

    def turn_over(self) -> None:
        """Begin a step: the current values become the previous ones."""
        self._steps += 1
        gone = self._previous
        if self._steps <= _CHECKED_AT_FIRST or self._steps % _CHECK_EVERY == 0:
            for slot_id, kept in gone.values.items():
                self._is_as_kept(slot_id, kept)
        self._spare.clear()
        for slot_id, kept in gone.values.items():
            self._books.bytes -= kept[_SIZE]
            if kept[_IS_COPY]:
                self._spare[slot_id] = kept[_TENSOR]
        self._previous, self._current = self._current, _Step()
        self._books.begin(self._current.values)

    def current(self, slot_id: int) -> Any | None:
        """Return the value of a slot in this step; None if it is not kept, or was written to since."""
        return self._value(self._current, slot_id)

    def previous(self, slot_id: int) -> Any | None:
        """Return the value of a slot in the previous step; None if it is not kept, or was written to since."""
        return self._value(self._previous, slot_id)

    def why_missing(self, slot_id: int, previous: bool = False) -> str:
        """Return why there is no value of a slot; empty if there is one."""
        step, words = (self._previous, "the previous step") if previous else (self._current, "this step")
        if slot_id in step.values:
            if self._value(step, slot_id) is not None:
                return ""
            later = "; from now on it is copied" if slot_id in self._copied else ""
            return f"the training has overwritten its value of {words}{later}"
        if slot_id in step.dropped:
            return (
                f"its value of {words} was dropped for others: {self.budget_bytes / 2**20:,.0f} MiB are set aside for"
                " values (TENSIGHT_MEMORY_BUDGET changes that)"
            )
        return f"its value of {words} was not kept"

    @property
    def has_dropped_values(self) -> bool:
        """Whether some values of this step were dropped for lack of room."""
        return bool(self._current.dropped)

    def forget(self, slot_id: int) -> None:
        """Stop showing the value of a slot in this step: it was overwritten, perhaps without a new version."""
        kept = self._current.values.get(slot_id)
        if kept is not None and not kept[_IS_COPY]:
            self._current.values[slot_id] = (kept[_TENSOR], _WRITTEN_OVER, kept[_SIZE], False)

    def copy_values(self, slot_id: int, is_wanted: bool = True) -> None:
        """Copy the values of a slot from now on, because the training overwrites them in every step.

        It may do so without a change of their versions (fused optimizers, running means). So even if copies are not
        wanted, a later step only shows the value of such a slot if it is a copy.
        """
        self._persistent.add(slot_id)
        if is_wanted:
            self._copied.add(slot_id)
        else:
            self._copied.discard(slot_id)
            self._spare.pop(slot_id, None)

    def clear(self) -> None:
        """Forget all values."""
        self._current, self._previous = _Step(), _Step()
        self._books.begin(self._current.values)
        self._books.bytes = 0
        self._spare.clear()

    def _value(self, step: _Step, slot_id: int) -> Any | None:
        kept = step.values.get(slot_id)
        if kept is None or (step is self._previous and slot_id in self._persistent and not kept[_IS_COPY]):
            return None
        return kept[_TENSOR] if self._is_as_kept(slot_id, kept) else None

    def _is_as_kept(self, slot_id: int, kept: _Kept) -> bool:
        """Whether a value was not overwritten; if it was, its slot is copied from the next step on."""
        if kept[_IS_COPY] or self._version_of(kept[_TENSOR]) == kept[_VERSION]:
            return True
        if self._wants_copies is None or self._wants_copies(slot_id):
            self._copied.add(slot_id)
        return False

    def _make_room(self) -> None:
        """Drop the oldest values until the others fit."""
        self._spare.clear()
        for step in (self._previous, self._current):
            while self._books.bytes > self.budget_bytes and step.values:
                slot_id, kept = step.values.popitem(last=False)
                step.dropped.add(slot_id)
                for other in self._others(step, slot_id, kept):
                    step.values.pop(other, None)
                    step.dropped.add(other)
                self._books.bytes -= kept[_SIZE]
                if step is self._current and not kept[_IS_COPY]:
                    self._by_identity.pop(id(kept[_TENSOR]), None)

    @staticmethod
    def _others(step: _Step, slot_id: int, kept: _Kept) -> list[int]:
        """Return the other slots with the tensor of a slot, which do not count it."""
        others = step.others.pop(slot_id, ())
        return [other for other in others if other in step.values and step.values[other][_TENSOR] is kept[_TENSOR]]

    def _release(self, step: _Step, slot_id: int) -> None:
        """Remove a value that another one replaces; its memory then counts for the next slot with the tensor."""
        kept = step.values.pop(slot_id)
        others = self._others(step, slot_id, kept)
        if not kept[_IS_COPY] and self._by_identity.get(id(kept[_TENSOR])) == slot_id:
            del self._by_identity[id(kept[_TENSOR])]
            if others:
                heir, *rest = others
                step.values[heir] = kept
                step.others[heir] = set(rest)
                self._by_identity[id(kept[_TENSOR])] = heir
                return
        self._books.bytes -= kept[_SIZE]
