"""The values of this and of the previous step, for as long as nobody else has written to them and memory lasts.

Values are kept by reference: nothing is copied while the training runs, its tensors just live longer. Each reference
comes with the tensor's version, so that a value which was written to in place is never shown for what it was before.
Where that happened values are copied from then on, if that is wanted (weights and optimizer states are written to in
every step). When there are too many the oldest fall out, and only their statistics remain.
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
"""Of the memory that is free at the start, how much values may take."""

_CHECKED_AT_FIRST = 4
_CHECK_EVERY = 64
"""In which steps it is looked which values were written to: that takes time for each of them."""


_Kept = tuple[Any, int, int, bool]
"""A tensor, its version, its size in bytes, whether it is a copy, whose version says nothing.

A plain tuple takes a fifth of the time of a named one, and there is one for every tensor of every step.
"""
_TENSOR, _VERSION, _SIZE, _IS_COPY = range(4)
_WRITTEN_OVER = -1
"""A version that no tensor has."""


class _Step:
    """The values of one step, the oldest first; a tensor that several slots see counts once."""

    __slots__ = ("dropped", "others", "values")

    def __init__(self) -> None:
        self.values: OrderedDict[int, _Kept] = OrderedDict()
        self.others: dict[int, set[int]] = {}
        self.dropped: set[int] = set()


class _Books:
    """A `Kept` where there are no compiled kernels: nobody else makes entries."""

    __slots__ = ("bytes", "identities")

    def __init__(self, identities: dict[int, int]) -> None:
        self.bytes = 0
        self.identities = identities

    def begin(self, values: dict[int, _Kept]) -> None:  # noqa: ARG002 - only `Retention` makes entries
        """Let a step begin."""
        self.identities.clear()


class Retention:
    """Values of this and the previous step.

    To be used by the thread that trains, or while that one waits.

    Parameters
    ----------
    reader : TensorReader
        Of the framework's tensors.
    budget_bytes : int, optional
        For all values together; a tenth of the memory that is free now by default.
    wants_copies : callable (slot_id) -> bool, optional
        Whether the values of a slot are to be copied once the training was seen to write to them in place; by default
        all are.

    Attributes
    ----------
    budget_bytes : int
    books : Kept or None
        With which an observer keeps values without a call of Python; None where there are no compiled kernels.
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
        """What the values need that are kept now."""
        return self._books.bytes

    def keep(self, slot_id: int, tensor: Any) -> None:
        """Keep the value of a slot in this step, in place of what it had before in it."""
        values = self._current.values
        if slot_id in values:
            self._release(self._current, slot_id)
        identity = id(tensor)
        same = self._by_identity.get(identity)
        is_copied = slot_id in self._copied
        # Some readers have to read a tensor to tell its version.
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
        """Return a slot that holds this very tensor in this step, if it was not written to since.

        That is certain, because what is held cannot be another tensor at the same address.
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
            return f"the training has written over its value of {words}{later}"
        if slot_id in step.dropped:
            return (
                f"its value of {words} gave way to others: {self.budget_bytes / 2**20:,.0f} MiB are set aside for"
                " values (TENSIGHT_MEMORY_BUDGET changes that)"
            )
        return f"its value of {words} was not kept"

    @property
    def has_dropped_values(self) -> bool:
        """Whether there was no room for all values of this step."""
        return bool(self._current.dropped)

    def forget(self, slot_id: int) -> None:
        """Show the value of a slot in this step no more: it was written over, which its version may not tell."""
        kept = self._current.values.get(slot_id)
        if kept is not None and not kept[_IS_COPY]:
            self._current.values[slot_id] = (kept[_TENSOR], _WRITTEN_OVER, kept[_SIZE], False)

    def copy_values(self, slot_id: int, wanted: bool = True) -> None:
        """Have the values of a slot copied from now on: the training is known to write to them in every step.

        It may do so without their versions telling (fused optimizers, running means). So, wanted or not, the value of
        such a slot is from now on only shown in a later step if it is a copy.
        """
        self._persistent.add(slot_id)
        if wanted:
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
        """Whether nobody has written to a value; where somebody has, it is copied from the next step on."""
        if kept[_IS_COPY] or self._version_of(kept[_TENSOR]) == kept[_VERSION]:
            return True
        if self._wants_copies is None or self._wants_copies(slot_id):
            self._copied.add(slot_id)
        return False

    def _make_room(self) -> None:
        """Let the oldest values go until the others fit."""
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
        """Return the other slots that hold the tensor of one, and do not count it."""
        others = step.others.pop(slot_id, ())
        return [other for other in others if other in step.values and step.values[other][_TENSOR] is kept[_TENSOR]]

    def _release(self, step: _Step, slot_id: int) -> None:
        """Take out a value that another one replaces; its memory then counts for the next slot that sees it."""
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
