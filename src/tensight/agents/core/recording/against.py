"""Compares a run with a trace while it goes on, and finds the first tensor whose content differs.

Each rank is compared with the trace of its rank, in the order of execution. Before the first difference everything that
was traced is the same, so an operator whose output differs from the trace has had the same inputs, as far as these are
traced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tensight.agents.core.notices import log, report
from tensight.agents.core.recording.tracing import traced_rows
from tensight.errors import InputError, TensightError
from tensight.graph.steps import step_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tensight.agents.core.columns import StatisticsColumns
    from tensight.agents.core.observation import Observation
    from tensight.agents.core.program import Program, TracedNode
    from tensight.agents.core.reader import Framework
    from tensight.agents.core.settings import AgentSettings
    from tensight.agents.core.slots import SlotTable, TensorSlot
    from tensight.dumps.trace_files import Trace, TracedStep

Kind = Literal["weight", "input", "operator", "update", "program"]
"""What differs: a weight before the first step, a batch, an operator's output, a weight or state after the update of a
step, or which operators run."""

_PERSISTENT = ("weight", "frozen_weight", "state", "buffer")


@dataclass(frozen=True, slots=True)
class Row:
    """The statistics of a tensor that a message shows.

    Attributes
    ----------
    dtype : str
    shape : tuple of int
    values : mapping of str to float
        ``min``, ``max``, ``mean``, ``l2_norm``.
    content_hash : int
    """

    dtype: str
    shape: tuple[int, ...]
    values: dict[str, float]
    content_hash: int

    def __str__(self) -> str:
        lengths = ", ".join(map(str, self.shape))
        numbers = " ".join(f"{name} {value:.9g}" for name, value in self.values.items())
        return f"{self.dtype}[{lengths}] {numbers} hash {self.content_hash:016x}"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between a run and a trace.

    Attributes
    ----------
    kind : str
        See `Kind`.
    iteration : int
        -1 before the first step.
    node, type : str
        Full name of the node, and its type.
    slot : int
    here, there : Row or None
        The statistics in this run and in the trace; None where the node did not run.
    """

    kind: Kind
    iteration: int
    node: str
    type: str
    slot: int = 0
    here: Row | None = None
    there: Row | None = None

    def lines(self, program: Program | None) -> list[str]:
        """Return the lines of the message for the user.

        Parameters
        ----------
        program : Program or None
            What runs, with its lines of code.
        """
        node = next((node for node in program.nodes if node.name == self.node), None) if program is not None else None
        lines = [f"{self._what()}{_where(node)}"]
        if self.kind == "operator":
            lines[0] += f"; {_inputs(node)}"
        if self.here is not None:
            lines.append(f"    here:  {self.here}")
        if self.there is not None:
            lines.append(f"    trace: {self.there}")
        return lines

    def _what(self) -> str:
        step = step_of(self.iteration)
        if self.kind == "weight":
            return f"the run differs from the trace before the first step: {self.node} has another initial value"
        if self.kind == "input":
            return f"the run differs from the trace in step {step}: the data {self.node}:{self.slot} differ"
        if self.kind == "update":
            return f"the run differs from the trace in step {step}: {self.node} has another value after the update"
        if self.kind == "program":
            where = "in this run" if self.there is None else "in the trace"
            return f"the run differs from the trace in step {step}: {self.node} ({self.type}) ran only {where}"
        return f"the run differs from the trace in step {step}: output {self.slot} of {self.node} ({self.type})"


def _where(node: TracedNode | None) -> str:
    if node is None or not node.stack:
        return ""
    frame = node.stack[0]
    lines = str(frame.line) if frame.end_line is None else f"{frame.line}-{frame.end_line}"
    return f", {frame.file}:{lines}"


def _inputs(node: TracedNode | None) -> str:
    unseen = 0 if node is None else sum(source is None for source in node.inputs)
    if node is None or unseen:
        return "those of its inputs that are traced are the same"
    return "all of its inputs are the same"


class TraceComparison:
    """Compares the tensors of a run with a trace as they are observed, if the settings request it.

    Parameters
    ----------
    settings : AgentSettings
        ``against`` and ``capture``.
    framework : Framework

    Attributes
    ----------
    is_on : bool
        Whether the comparison goes on; every slot then needs its content hash.
    """

    def __init__(self, settings: AgentSettings, framework: Framework) -> None:
        self.is_on = False
        self._trace: Trace | None = None
        self._path = ""
        self._compared = self._steps = 0
        self._tensor_numbers: dict[tuple[str, str, int], int] = {}
        self._numbers: list[int] = []
        self._step: _ExpectedStep | None = None
        self._position = 0
        if settings.against:
            try:
                self._open(settings, framework)
            except (OSError, TensightError) as error:
                log(f"nothing is compared: {error}")

    def advance(self, observed: Observation, *, is_done: bool = False) -> Divergence | None:
        """Compare what was observed since the last call; return the first difference, after which nothing is compared.

        Parameters
        ----------
        observed : Observation
        is_done : bool
            Whether the step is over.
        """
        seen, slot_table, columns = observed.seen, observed.slot_table, observed.columns
        step = self._expected(columns.current_iteration)
        if step is None:
            return None
        # A slot that is observed again still has its row.
        new = [slot_id for slot_id in dict.fromkeys(seen[self._position :]) if slot_id not in step.compared]
        self._position = len(seen)
        divergence = self._compare(step, new, slot_table, columns)
        if divergence is None and is_done:
            divergence = self._compare(step, step.postponed, slot_table, columns, is_done=True) or step.missing(
                slot_table
            )
            self._steps += step.iteration >= 0
        if divergence is not None:
            self.is_on = False
        return divergence

    def end(self) -> None:
        """Report how far the run was compared, unless a difference was found."""
        if self.is_on and self._trace is not None:
            self.is_on = False
            more = len([iteration for iteration in self._trace.steps if iteration >= 0]) - self._steps
            rest = f"; the trace has {more} more steps" if more > 0 else ""
            log(f"no difference from the trace in {self._steps} steps, {self._compared:,} tensors{rest}")

    # --- the trace ---

    def _open(self, settings: AgentSettings, framework: Framework) -> None:
        from tensight.dumps.layouts import find_dump
        from tensight.dumps.trace_files import TRACE_SUFFIX, read_trace

        dump = find_dump(settings.against)
        traces = [rank for rank in dump.ranks if rank.path.endswith(TRACE_SUFFIX)]
        file = next((rank for rank in traces if rank.rank == framework.rank), None)
        if file is None:
            raise InputError(f"{settings.against}: there is no trace of rank {framework.rank}")
        self._path = dump.storage.full_path(file.path)
        with dump.storage.open(file.path) as opened:
            trace = read_trace(opened, self._path)
        if trace.header.capture != settings.capture:
            how = f"--capture {trace.header.capture}, TENSIGHT_CAPTURE={trace.header.capture}"
            raise InputError(f"{self._path}: was traced with another capture than this run has; run it with {how}")
        if not trace.steps:
            raise InputError(f"{self._path}: contains no step")
        self._trace = trace
        self._tensor_numbers = {
            (tensor.node, tensor.io, tensor.slot): number for number, tensor in enumerate(trace.tensors)
        }
        self.is_on = True
        report(f"the training is compared with {self._path}")

    def _expected(self, iteration: int) -> _ExpectedStep | None:
        """Return what the trace contains of an iteration; None if that is nothing."""
        if self._trace is None or not self.is_on:
            return None
        if self._step is None or self._step.iteration != iteration:
            self._position = 0
            step = self._trace.steps.get(iteration)
            if step is None:
                if iteration > max(self._trace.steps):
                    self.end()
                return None
            self._step = _ExpectedStep(self._trace, step, self._rows_of(step))
        return self._step

    def _rows_of(self, step: TracedStep) -> NDArray[np.void]:
        from tensight.dumps.storage import open_file
        from tensight.dumps.trace_files import read_rows

        assert self._trace is not None  # noqa: S101 - for the types
        with open_file(self._path) as opened:
            return read_rows(opened, self._trace, step)

    # --- comparing ---

    def _compare(
        self,
        step: _ExpectedStep,
        numbers: Sequence[int],
        slot_table: SlotTable,
        columns: StatisticsColumns,
        *,
        is_done: bool = False,
    ) -> Divergence | None:
        if not numbers:
            return None
        taken = columns.take(np.array(numbers, np.int64))
        written = (taken.iterations == columns.current_iteration) & (taken.codes >= 0)
        if not written.all():
            taken = columns.take(taken.slot_ids[written])
        rows, shapes = traced_rows(taken)
        dtypes = taken.dtypes
        for index, number in enumerate(taken.slot_ids.tolist()):
            step.compared.add(number)
            tensor_slot = slot_table[number]
            tensor = self._tensor_numbers.get((tensor_slot.node.name, tensor_slot.io, tensor_slot.slot), -1)
            # The trace need not contain a weight or state in all of its steps.
            is_unknown = tensor < 0 or tensor_slot.node.role not in _PERSISTENT
            if is_unknown and not step.has_node(tensor_slot.node.name):
                mine = _row(rows[index], dtypes[index], shapes[index])
                return _difference(tensor_slot, step.iteration, "program", mine)
            expected = step.row_of.get(tensor)
            if expected is None:
                continue
            if not is_done and step.rows["repeats"][expected]:
                # It is written to again in the same step, and the trace contains its last value.
                step.postponed.append(number)
                continue
            self._compared += 1
            there, (dtype, shape) = step.rows[expected], step.kind(expected)
            here = rows[index]
            same = here["content_hash"] == there["content_hash"] and here["count"] == there["count"]
            if not same or dtypes[index] != dtype or shapes[index] != shape:
                kind = _kind(tensor_slot, step.iteration)
                mine = _row(here, dtypes[index], shapes[index])
                return _difference(tensor_slot, step.iteration, kind, mine, _row(there, dtype, shape))
        return None


class _ExpectedStep:
    """The part of a trace for one iteration."""

    def __init__(self, trace: Trace, step: TracedStep, rows: NDArray[np.void]) -> None:
        self.iteration = step.iteration
        self.rows = rows
        self.row_of = {tensor: row for row, tensor in enumerate(rows["tensor"].tolist())}
        self.compared: set[int] = set()
        self.postponed: list[int] = []
        self._trace = trace
        self._nodes = {trace.tensors[tensor].node for tensor in self.row_of}

    def has_node(self, name: str) -> bool:
        """Whether a node has a row."""
        return name in self._nodes

    def kind(self, row: int) -> tuple[str, tuple[int, ...]]:
        """Return element type and shape of a row."""
        fields = self.rows[row]
        return self._trace.header.dtypes[fields["dtype"]], self._trace.shapes[fields["shape"]]

    def missing(self, slot_table: SlotTable) -> Divergence | None:
        """Return the first operator of the trace that was not observed, in a step that is over."""
        seen = {slot_table[number].node.name for number in self.compared}
        for row, tensor in enumerate(self.rows["tensor"].tolist()):
            traced = self._trace.tensors[tensor]
            if traced.node not in seen and traced.type != "Parameter":
                there = _row(self.rows[row], *self.kind(row))
                return Divergence("program", self.iteration, traced.node, traced.type, traced.slot, None, there)
        return None


def _kind(tensor_slot: TensorSlot, iteration: int) -> Kind:
    if tensor_slot.node.role == "input":
        return "input"
    if tensor_slot.node.role in _PERSISTENT:
        return "weight" if iteration < 0 else "update"
    return "operator"


def _difference(tensor_slot: TensorSlot, iteration: int, kind: Kind, here: Row, there: Row | None = None) -> Divergence:
    return Divergence(kind, iteration, tensor_slot.node.name, tensor_slot.node.type, tensor_slot.slot, here, there)


def _row(row: np.void, dtype: str, shape: tuple[int, ...]) -> Row:
    values = {name: float(row[name]) for name in ("min", "max", "mean", "l2_norm")}
    return Row(dtype, shape, values, int(row["content_hash"]))
