"""Sends rows of statistics to the debug server: all rows of a step with a stop, otherwise some at intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.agents.core.connection.telemetry import StepRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from tensight.agents.core.connection.attachment import Attachment
    from tensight.agents.core.connection.introduction import Introduction
    from tensight.agents.core.connection.known_programs import KnownPrograms
    from tensight.agents.core.connection.telemetry import Telemetry
    from tensight.agents.core.observation import Observation


class RowSender:
    """Sends the rows of steps to the server.

    Parameters
    ----------
    attachment : Attachment
    introduction : Introduction
    telemetry : Telemetry
    observed : Observation
    programs : KnownPrograms
    has_run : callable
        Whether a slot has its value of this step where the training is stopped.
    """

    def __init__(
        self,
        attachment: Attachment,
        introduction: Introduction,
        telemetry: Telemetry,
        observed: Observation,
        programs: KnownPrograms,
        *,
        has_run: Callable[[int], bool],
    ) -> None:
        self._attachment = attachment
        self._introduction = introduction
        self._telemetry = telemetry
        self._observed = observed
        self._columns = observed.columns
        self._programs = programs
        self._has_run = has_run
        self._weights: StepRows | None = None

    def complete(self) -> None:
        """Write missing rows, of slots that were only checked for NaN and Inf, and hashes, if values are still kept."""
        columns = self._columns
        for slot_id in self._observed.seen:
            if not columns.has_row(slot_id) or not columns.has_hash(slot_id):
                tensor = self._observed.retention.current(slot_id)
                if tensor is not None:
                    self._observed.reader.scan(tensor, columns, slot_id)
        self._observed.reader.settle(columns)

    def send(self) -> None:
        """Send the rows of this step, and those of the weights in the step before, which this one read."""
        if self._introduction.is_ours:
            rows = self._rows()
            batches = [batch for batch in (self._telemetry.unsent(self._weights), rows) if batch is not None]
            if batches or self._telemetry.has_more:
                self._telemetry.send(self._attachment.connection, *batches)

    def offer(self) -> None:
        """Send the rows of this step soon, if the server has received none for a while."""
        if self._observed.seen and self._introduction.is_ours and self._telemetry.is_due:
            rows = self._rows()
            if rows is not None:
                self._telemetry.offer(rows)

    def last(self, iteration: int) -> StepRows | None:
        """Return the rows of the last step that ended; None if it was not observed, or the server has them."""
        written = np.flatnonzero(self._columns.iteration[: len(self._observed.slot_table)] == iteration)
        return self._telemetry.unsent(self._of(iteration, written)) if written.size else None

    def keep_weights(self, slot_ids: NDArray[np.int64] | None) -> None:
        """Keep a copy of the rows that weights and states have in this step; with None, keep nothing."""
        self._weights = None
        if slot_ids is not None and self._observed.seen:
            self._weights = self._of(self._columns.current_iteration, slot_ids)

    def _rows(self) -> StepRows | None:
        """Return a copy of the rows of this step; None if there are none."""
        if not self._observed.seen:
            return None
        there: Iterable[int] = filter(self._has_run, dict.fromkeys(self._observed.seen))
        return self._of(self._columns.current_iteration, np.fromiter(there, np.int64))

    def _of(self, iteration: int, slot_ids: NDArray[np.int64]) -> StepRows | None:
        program = self._programs.latest
        return None if program is None else StepRows(iteration, program, self._columns.take(slot_ids))
