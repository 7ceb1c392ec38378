"""The values of this and of the previous step, as long as they are not overwritten and memory suffices.

What is kept of a tensor is its memory, and nothing else: neither the object nor the history of its computation, which
would keep everything alive that autograd has saved. Nothing is copied while the training runs, its memory just lives
longer. It comes with the tensor's version, so that a value that was overwritten in place is never shown as the earlier
one. Values of such slots are copied from then on, if requested (weights and optimizer states are overwritten in every
step). If there are too many values, the oldest are dropped, and only their statistics remain. Tensors that share memory
count once, with all of it: a small view keeps the whole.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from tensight.agents.core.process.memory import free_bytes
from tensight.tensors.native import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.agents.core.reader import TensorReader
    from tensight.tensors.native import Kept

SHARE_OF_FREE = 0.1
"""Share of the memory free at the start that values may take."""

_CHECKED_AT_FIRST = 4
_CHECK_EVERY = 64
"""Steps in which values are checked for having been overwritten, which takes time for each of them."""


_Kept = tuple[Any, int, bool, Any, Any]
"""The memory of a tensor, the tensor's version, whether it is a copy, whose version has no meaning, its storage, and a
weak reference to the tensor; None in its place if the memory is the tensor itself, or a copy.

A plain tuple takes a fifth of the time of a named one, and there is one for every tensor of every step.
"""
_MEMORY, _VERSION, _IS_COPY, _STORAGE, _REFERENCE = range(5)
_WRITTEN_OVER = -1
"""A version that no tensor has."""


class _Step:
    """The values of one step, the oldest first."""

    __slots__ = ("dropped", "values")

    def __init__(self) -> None:
        self.values: OrderedDict[int, _Kept] = OrderedDict()
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
        For all values together; by default a tenth of the memory that is free now, on the host and on the device.
    wants_copies : callable (slot_id) -> bool, optional
        Whether the values of a slot are copied once the training has overwritten one of them in place; by default all
        are.
    device_bytes : int, optional
        Memory that is free on the device of the tensors, if it has its own.

    Attributes
    ----------
    budget_bytes : int
    before_reading : callable
        Called before a value of this step is read, so that an observer may add those that it has not kept yet.
    books : Kept or None
        Lets an observer keep values without a call of Python; None without compiled kernels.
    """

    def __init__(
        self,
        reader: TensorReader,
        budget_bytes: int | None = None,
        wants_copies: Callable[[int], bool] | None = None,
        device_bytes: int | None = None,
    ) -> None:
        if budget_bytes is None:
            host_bytes = free_bytes()
            budget_bytes = int(SHARE_OF_FREE * min(host_bytes, host_bytes if device_bytes is None else device_bytes))
        self.budget_bytes = budget_bytes
        self.before_reading: Callable[[], None] = lambda: None
        self._reader = reader
        self._wants_copies = wants_copies
        self._version_of = reader.version
        self._current = _Step()
        self._previous = _Step()
        self._by_identity: dict[int, int] = {}
        self._storages: dict[Any, tuple[int, int]] = {}
        self._copied: set[int] = set()
        self._persistent: set[int] = set()
        self._spare: dict[int, _Kept] = {}
        self._steps = 0
        compiled = kernels()
        self.books: Kept | None = None
        if compiled is not None:
            self.books = compiled.Kept(
                self._current.values, self._by_identity, self._copied, self._storages, reader.hold, self.budget_bytes
            )
        self._books = self.books or _Books(self._by_identity)

    @property
    def kept_bytes(self) -> int:
        """Size of the memory that is kept now."""
        return self._books.bytes

    def keep(self, slot_id: int, tensor: Any) -> None:
        """Keep the value of a slot in this step, replacing its earlier one of the step."""
        values = self._current.values
        same = self.same_as(tensor)
        if same is not None:
            self._put(slot_id, values[same])
            self._by_identity[id(tensor)] = slot_id
            return
        if slot_id in values:
            self._release(values.pop(slot_id))
        if slot_id in self._copied:
            self._keep_copy(slot_id, tensor)
        else:
            self._keep_memory(slot_id, tensor)

    def _keep_memory(self, slot_id: int, tensor: Any) -> None:
        held = self._reader.hold(tensor)
        if held is None:
            return
        memory, storage, size = held
        if storage not in self._storages and not self._make_room(slot_id, size):
            return
        reference = None if memory is tensor else weakref.ref(tensor)
        self._put(slot_id, (memory, self._version_of(tensor), False, storage, reference), size)
        self._by_identity[id(tensor)] = slot_id

    def _keep_copy(self, slot_id: int, tensor: Any) -> None:
        spare = self._spare.pop(slot_id, None)
        if spare is None and not self._make_room(slot_id, self._reader.describe(tensor)[2]):
            return
        copy = self._reader.copy(tensor, None if spare is None else spare[_MEMORY])
        held = None if copy is None else self._reader.hold(copy)
        if held is not None:
            self._put(slot_id, (copy, 0, True, held[1], None), held[2])
        if spare is not None:
            self._release(spare)

    def same_as(self, tensor: Any) -> int | None:
        """Return a slot with this very tensor in this step, if it was not written to since."""
        slot_id = self._by_identity.get(id(tensor))
        kept = None if slot_id is None else self._current.values.get(slot_id)
        if kept is None:
            return None
        reference: Any = kept[_REFERENCE]
        # The tensor may be gone, and its identity that of another one.
        other = kept[_MEMORY] if reference is None else reference()
        return slot_id if other is tensor and kept[_VERSION] == self._version_of(tensor) else None

    def turn_over(self) -> None:
        """Begin a step: the current values become the previous ones."""
        self._steps += 1
        gone = self._previous
        if self._steps <= _CHECKED_AT_FIRST or self._steps % _CHECK_EVERY == 0:
            for slot_id, kept in gone.values.items():
                self._is_as_kept(slot_id, kept)
        self._drop_spare()
        for slot_id, kept in gone.values.items():
            if kept[_IS_COPY] and slot_id in self._copied:
                self._spare[slot_id] = kept
            else:
                self._release(kept)
        self._previous, self._current = self._current, _Step()
        self._books.begin(self._current.values)

    def current(self, slot_id: int) -> Any | None:
        """Return the value of a slot in this step; None if it is not kept, or was written to since."""
        self.before_reading()
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
            self._current.values[slot_id] = (kept[_MEMORY], _WRITTEN_OVER, False, kept[_STORAGE], kept[_REFERENCE])

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
            spare = self._spare.pop(slot_id, None)
            if spare is not None:
                self._release(spare)

    def clear(self) -> None:
        """Forget all values."""
        self._current, self._previous = _Step(), _Step()
        self._books.begin(self._current.values)
        self._books.bytes = 0
        self._storages.clear()
        self._spare.clear()

    def _value(self, step: _Step, slot_id: int) -> Any | None:
        kept = step.values.get(slot_id)
        if kept is None or (step is self._previous and slot_id in self._persistent and not kept[_IS_COPY]):
            return None
        return kept[_MEMORY] if self._is_as_kept(slot_id, kept) else None

    def _is_as_kept(self, slot_id: int, kept: _Kept) -> bool:
        """Whether a value was not overwritten; if it was, its slot is copied from the next step on."""
        if kept[_IS_COPY] or self._version_of(kept[_MEMORY]) == kept[_VERSION]:
            return True
        if self._wants_copies is None or self._wants_copies(slot_id):
            self._copied.add(slot_id)
        return False

    # --- memory ---

    def _put(self, slot_id: int, kept: _Kept, size: int = 0) -> None:
        """Add a value to this step, and count its storage, given its size if it may be new."""
        storage = kept[_STORAGE]
        number, counted = self._storages.get(storage, (0, size))
        self._storages[storage] = number + 1, counted
        if not number:
            self._books.bytes += counted
        values = self._current.values
        earlier = values.pop(slot_id, None)
        values[slot_id] = kept
        if earlier is not None:
            self._release(earlier)

    def _release(self, kept: _Kept) -> None:
        """Count a value that is no longer kept."""
        storage = kept[_STORAGE]
        number, size = self._storages[storage]
        if number > 1:
            self._storages[storage] = number - 1, size
        else:
            del self._storages[storage]
            self._books.bytes -= size

    def _drop_spare(self) -> None:
        for kept in self._spare.values():
            self._release(kept)
        self._spare.clear()

    def _make_room(self, slot_id: int, size: int) -> bool:
        """Drop the oldest values until another one fits; return False if it cannot, and drop that one instead."""
        if size > self.budget_bytes:
            self._current.dropped.add(slot_id)
            return False
        if self._books.bytes + size > self.budget_bytes:
            self._drop_spare()
        for step in (self._previous, self._current):
            while self._books.bytes + size > self.budget_bytes and step.values:
                oldest, kept = step.values.popitem(last=False)
                step.dropped.add(oldest)
                self._release(kept)
        return True
