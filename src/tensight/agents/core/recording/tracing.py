"""Traces a run: the statistics and content hashes of every step, in a separate file for each rank.

No server is needed, no connection is made, and ranks do not wait for each other. A step is written when it ends, by one
system call, so the file contains only steps that are done. If writing fails, tracing ends with a line for the user; the
training goes on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.core.graph_messages import execution_order, graph_message, graph_number
from tensight.agents.core.notices import log, report
from tensight.errors import InputError, TensightError
from tensight.tensors import COUNTS, MEASURES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tensight.agents.core.observation import Observation
    from tensight.agents.core.program import Program
    from tensight.agents.core.reader import Framework
    from tensight.agents.core.settings import AgentSettings
    from tensight.dumps.trace_files import TraceWriter

STATES_OF_FIRST = 8
"""Number of first steps for which a trace contains the optimizer's states."""

STATES_EVERY = 8
"""Interval of the later steps for which it contains them."""


def reads_states(step: int) -> bool:
    """Whether a trace contains the optimizer's states of a step: of the first ones, and of some later ones.

    They are most of the tensors that a step leaves behind. If one is wrong, the weight that it updates differs in every
    step.
    """
    return step < STATES_OF_FIRST or step % STATES_EVERY == 0


class Tracer:
    """Writes a trace, if the settings request it. Nothing here raises into the training.

    Parameters
    ----------
    settings : AgentSettings
        ``trace``, ``trace_steps`` and ``capture``.
    framework : Framework
    script : str
        Command line of the training.

    Attributes
    ----------
    is_on : bool
        Whether steps are traced; every slot then needs its statistics and its content hash, except for the optimizer's
        states, see `reads_states`.
    folder : Path or None
        The trace; None if there never was one.
    """

    def __init__(self, settings: AgentSettings, framework: Framework, script: str = "") -> None:
        self.is_on = False
        self.folder: Path | None = None
        self._steps_left = settings.trace_steps
        self._process_id = os.getpid()
        self._opened: TraceWriter | None = None
        self._programs: dict[int, Program] = {}
        self._last = -2
        if settings.trace:
            try:
                self._open(settings, framework, script)
            except (OSError, TensightError) as error:
                self._end(error)

    def describe(self, setup: Mapping[str, Any]) -> None:
        """Write the set-up of the training."""
        writer = self._writer
        if writer is not None:
            try:
                writer.write_setup(setup)
            except Exception as error:
                self._end(error)

    def learn(self, program: Program) -> None:
        """Add a program whose steps are traced, or an extended version of a known one."""
        writer = self._writer
        if writer is None:
            return
        number = graph_number(program)
        if self._programs.get(number) is program:
            return
        try:
            writer.write_graph(number, graph_message(program), execution_order(program))
            self._programs[number] = program
        except Exception as error:
            self._end(error)

    def record(self, program: Program, observed: Observation) -> None:
        """Write a step that has ended.

        Parameters
        ----------
        program : Program
            What ran.
        observed : Observation
            Its iteration is -1 for the values before the first step.
        """
        writer, iteration = self._writer, observed.columns.current_iteration
        if writer is None or iteration <= self._last:
            return
        self.learn(program)
        try:
            self._write(writer, iteration, graph_number(program), observed)
            self._last = iteration
        except Exception as error:
            self._end(error)
        if self._steps_left is not None and iteration + 1 >= self._steps_left:
            self.close()

    def close(self) -> None:
        """Stop writing."""
        writer = self._writer
        self.is_on = False
        if writer is not None:
            writer.close()

    @property
    def _writer(self) -> TraceWriter | None:
        """The file, while it is written to; a forked process has the tracer, too, but its parent owns the trace."""
        return self._opened if self.is_on and os.getpid() == self._process_id else None

    def _write(self, writer: TraceWriter, iteration: int, graph: int, observed: Observation) -> None:
        from tensight.dumps.trace_files import TracedTensor

        slot_table, columns = observed.slot_table, observed.columns
        new = (slot_table[number] for number in range(writer.tensors, len(slot_table)))
        writer.add_tensors(
            [
                TracedTensor(tensor_slot.node.name, tensor_slot.node.type, tensor_slot.io, tensor_slot.slot)
                for tensor_slot in new
            ]
        )
        order = np.array(observed.seen, np.int64)
        seen = np.fromiter(dict.fromkeys(order.tolist()), np.int64)
        taken = columns.take(seen[seen < len(slot_table)])
        is_of_step = (taken.iterations == iteration) & (taken.codes >= 0)
        rows, shapes = traced_rows(columns.take(taken.slot_ids[is_of_step]))
        if len(order) > len(seen):
            # The row of a slot that was observed several times is the last one.
            rows["repeats"] = np.bincount(order)[rows["tensor"]] > 1
        writer.write_step(iteration, graph, rows, shapes)

    def _open(self, settings: AgentSettings, framework: Framework, script: str) -> None:
        # Imported only when something is traced.
        from tensight.dumps.trace_files import TRACE_SUFFIX, TraceHeader, TraceWriter

        folder = Path(settings.trace).expanduser().absolute()
        folder.mkdir(0o700, parents=True, exist_ok=True)
        header = TraceHeader(
            framework.name,
            framework.version,
            framework.backend.upper(),
            framework.device,
            framework.rank,
            framework.world_size,
            settings.capture,
            script,
        )
        try:
            self._opened = TraceWriter(folder / f"rank_{framework.rank}{TRACE_SUFFIX}", header)
        except FileExistsError:
            raise InputError(
                f"{folder}: contains a trace of rank {framework.rank} already; name another folder"
            ) from None
        self.folder = folder
        self.is_on = True
        report(f"the training is traced in {folder}")

    def _end(self, error: Exception) -> None:
        """Stop tracing, and log why."""
        self.close()
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error) or repr(error)
        if self.folder is None:
            log(f"nothing is traced: {reason}")
        else:
            log(f"tracing ends, the training goes on: {self.folder}: {reason}")


def traced_rows(rows: Any) -> tuple[NDArray[np.void], list[tuple[int, ...]]]:
    """Return rows of statistics in the format of a trace, and their shapes.

    Parameters
    ----------
    rows : Rows
        Of slots that were all written.
    """
    from tensight.dumps.trace_files import TRACE_ROW

    traced: NDArray[np.void] = np.zeros(len(rows), TRACE_ROW)
    traced["tensor"], traced["dtype"] = rows.slot_ids, rows.codes
    for names, values in ((COUNTS, rows.counts), (MEASURES, rows.numbers)):
        for column, name in enumerate(names):
            traced[name] = values[:, column]
    traced["content_hash"] = rows.hashes
    return traced, rows.shapes
