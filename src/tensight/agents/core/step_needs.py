"""Decides what a step needs before it begins, according to watchpoints, inspection, recording and tracing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.agents.core.persistent_slots import PersistentSlots
from tensight.agents.core.recording.tracing import reads_states
from tensight.agents.core.slots import Need

if TYPE_CHECKING:
    from tensight.agents.core.connection.server import Server
    from tensight.agents.core.observation import Observation
    from tensight.agents.core.recording.step_records import StepRecords
    from tensight.agents.core.settings import AgentSettings
    from tensight.agents.core.watching.watches import Watches

_CHANGE = int(Need.CHANGE)
_SHOWN = Need.ROW | Need.VALUE
_TRACED = Need.ROW | Need.HASH
_ALL = _SHOWN | Need.HASH


class StepNeeds:
    """The needs of every slot in the next step.

    Parameters
    ----------
    settings : AgentSettings
    observed : Observation
    watches : Watches
    records : StepRecords
    server : Server
    walks : bool
        Whether a step is complete before it can be inspected.

    Attributes
    ----------
    persistent : PersistentSlots
        The slots that every step updates.
    is_inspected : bool
        Whether a user will inspect the step, or a part of it.
    captures_modules : bool
        Whether calls of modules are captured, and not every operator.
    may_watch_anew : bool
        Whether watchpoints may have changed.
    """

    def __init__(
        self,
        settings: AgentSettings,
        observed: Observation,
        watches: Watches,
        records: StepRecords,
        *,
        server: Server,
        walks: bool,
    ) -> None:
        self._settings = settings
        self._observed = observed
        self._watches = watches
        self._records = records
        self.persistent = PersistentSlots(observed.slot_table, observed.retention)
        self._server = server
        self._walks = walks
        self._base = Need.NOTHING
        self._of_states: Need | None = None
        self._watches_weights = False
        self._has_values = True
        self.is_inspected = False
        self.captures_modules = settings.capture == "modules"
        self.may_watch_anew = True

    @property
    def shows_all(self) -> bool:
        """Whether a user who stops at the step can inspect everything of each slot."""
        return self._base & _SHOWN == _SHOWN or self._settings.partial_memory

    def begin(self) -> None:
        """Set the needs before the first step.

        Initial weights are observed before there is a server; with partial memory, statistics must suffice.
        """
        self.require(Need.ROW | Need.HASH if self._settings.partial_memory else _ALL)

    def begin_step(self, step: int, *, is_captured: bool, is_inspected: bool, watches: bool) -> None:
        """Decide what every slot needs, watched or not, and release the values of the step before the last.

        Parameters
        ----------
        step : int
            The next step, from 0.
        is_captured : bool
            Whether anything is needed from it.
        is_inspected : bool
            Whether a user will inspect it.
        watches : bool
            Whether watchpoints check it.
        """
        self.persistent.add_new()
        if is_captured:
            self._decide(step, is_inspected=is_inspected, watches=watches)
            self.persistent.forget_uncopied()
            self._observed.retention.turn_over()
            self._has_values = True
        elif self._has_values:
            # An adapter may observe a step to learn what runs; nothing of it is kept.
            self.require(Need.NOTHING)
            self._observed.retention.clear()
            self._has_values = False

    def _decide(self, step: int, *, is_inspected: bool, watches: bool) -> None:
        partial, base = self._settings.partial_memory, Need.NOTHING
        # References to thousands of intermediates keep memory from being reused, which costs more than the watching; if
        # operators are captured, an adapter shows the values of hits all the same.
        watches_modules = watches and self.captures_modules
        everything = is_inspected or self._records.recorder.is_on
        if not partial and (everything or watches_modules):
            # A step that may not be inspected gets its hashes when the training stops.
            base = _ALL if everything else _SHOWN
        elif not partial and watches and self._walks:
            # The values of a step that is complete before it can be inspected are available anyway.
            base = Need.VALUE
        of_states = Need.VALUE if base == _SHOWN else None
        if self._records.tracer.is_on or self._records.comparison.is_on:
            of_states = Need.NOTHING if not base and not reads_states(step) else None
            base |= _TRACED
        if self._records.comparison.is_on and self._server.is_attached and not partial:
            # A user will inspect the step with the difference.
            base |= Need.VALUE
        is_other = self.require(base) or self.may_watch_anew or of_states != self._of_states
        if is_inspected != self.is_inspected or self.may_watch_anew:
            self.is_inspected, self.may_watch_anew = is_inspected, False
            self._watches_weights = watches and not partial
            self.persistent.choose_copies(self.wants_copies)
        if is_other:
            self._of_states = of_states
            # Most of the tensors are states: at a stop, rows of states that are not watched are added.
            instead = {} if of_states is None else dict.fromkeys(self.persistent.states, of_states)
            if self._watches_weights and not base:
                instead = dict.fromkeys(self.persistent.weights, Need.VALUE)
            self._watches.require(base, instead)

    def require(self, need: Need) -> bool:
        """Set the needs of every slot; return whether they have changed."""
        if need == self._base:
            return False
        self._base = need
        self._watches.require(need)
        return True

    def wants_copies(self, slot_id: int) -> bool:
        """Whether a value that is overwritten in every step must be copied, because it will be inspected."""
        if self.is_inspected or self._records.recorder.is_on or self._observed.slot_table.needs[slot_id] & _CHANGE:
            return True
        # At a hit, users compare weights with the step before.
        return self._watches_weights and self._observed.slot_table[slot_id].node.role in ("weight", "frozen_weight")
