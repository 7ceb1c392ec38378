"""A rank that watches itself: its hits are appended to a file of its own, with no server and no other rank involved.

Thousands of ranks can do so, because none waits for anything. What they have seen is put together afterwards, from
their files. One thing they do together, through the file system: when a watchpoint that breaks trainings hits on some
rank, all keep the steps that they have recorded last.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.core.notices import log, report
from tensight.graph.source import user_frame
from tensight.graph.steps import step_of
from tensight.ranks import RankFile
from tensight.watchpoints import Severity, recommended_watchpoints
from tensight.watchpoints.rank_hits import KIND, RankHit, SourceLine, first_line, line_of
from tensight.wire import set_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.agents.core.observation import Observation
    from tensight.agents.core.program import Program, TracedNode
    from tensight.agents.core.reader import Framework
    from tensight.agents.core.recording.recording import Recorder
    from tensight.agents.core.settings import AgentSettings
    from tensight.agents.core.watching.rules import AgentHit
    from tensight.watchpoints import Watchpoint
    from tensight.wire.debugger_pb2 import SetCMD

MARK = "keep-last-steps"
"""A file in the folder of a run, made by the first rank that asks all ranks to keep their last steps."""

MOST_BYTES = 1 << 26
"""Maximum size of the file of hits of a process."""

MOST_NEW, MOST_FOLLOWING = 1_000, 20
"""Tensors of a watchpoint whose first hits are written: those that follow from nothing seen before, and others."""

_PROGRESS_S = 10.0
_PROGRESS_SHARE = 0.01
"""How far a rank has come is written at these intervals: in seconds, and as a share of its age."""

_MOST_MARK = 1_000


class WatchedAlone:
    """What a rank that watches itself writes.

    Nothing here raises into the training.

    Parameters
    ----------
    settings : AgentSettings
        ``alone`` is the folder.
    framework : Framework
    recorder : Recorder
        Its last steps are kept when a rank asks for that.

    Attributes
    ----------
    is_on : bool
        Whether this rank watches itself.
    folder : Path or None
        That of the run; None if nothing is written.
    watchpoints : tuple of Watchpoint
    """

    def __init__(self, settings: AgentSettings, framework: Framework, recorder: Recorder) -> None:
        self.is_on = False
        self.folder: Path | None = None
        self.watchpoints: tuple[Watchpoint, ...] = ()
        self._every = settings.alone_every
        self._framework = framework
        self._recorder = recorder
        self._process_id = os.getpid()
        self._counts: dict[int, _Count] = {}
        self._steps_with_hits = 0
        self._began_s = self._written_s = time.monotonic()
        self._kept_from: int | None = None
        if settings.alone:
            self._open(Path(settings.alone).expanduser().absolute())

    def watches(self, step: int) -> bool:
        """Whether a step, counted from 1, is watched."""
        return self.is_on and (step == 1 or step % self._every == 0)

    def commands(self) -> list[SetCMD]:
        """Return the watchpoints of this rank as a server would send them."""
        return [set_command(watchpoint, (), selection=str(watchpoint.selection)) for watchpoint in self.watchpoints]

    def step_done(self, hits: Sequence[AgentHit], program: Program | None, observed: Observation) -> None:
        """Append what was seen of a step.

        Parameters
        ----------
        hits : sequence of AgentHit
            In the order of execution.
        program : Program or None
            What ran.
        observed : Observation
            Its iteration is -1 for the state before the first step.
        """
        if not self.is_on or os.getpid() != self._process_id:
            return
        step = step_of(observed.columns.current_iteration)
        try:
            lines = self._lines(step, hits, program, observed) if hits else []
            if self._recorder.is_on and self._recorder.is_ring:
                lines += self._keep(step, hits)
            if not lines and self._is_progress_due():
                lines.append(line_of({"step": step}))
            self._write(lines)
        except Exception as error:
            self._end(error)

    def close(self, step: int) -> None:
        """Append that the training has ended, after so many steps."""
        if self.is_on and os.getpid() == self._process_id:
            try:
                self._write([self._line_of_counts(step), line_of({"over": step})])
            except OSError as error:
                self._end(error)
        self.is_on = False

    def _open(self, folder: Path) -> None:
        framework = self._framework
        watchpoints = recommended_watchpoints(initial=True, live=True)
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
            self._file = RankFile(folder, KIND, framework.rank, self._process_id, MOST_BYTES)
            self._file.write([first_line(framework.rank, framework.world_size, os.uname().nodename, watchpoints)])
        except OSError as error:
            self._end(error)
            return
        self.folder, self.watchpoints, self.is_on = folder, watchpoints, True
        if framework.rank == 0:
            who = "the training watches itself" if framework.world_size == 1 else "each rank watches itself"
            report(f"{who}; `tensight check {folder}` says what was seen")

    def _write(self, lines: list[bytes]) -> None:
        if lines:
            self._file.write(lines)
            self._written_s = time.monotonic()

    def _is_progress_due(self) -> bool:
        since_s = time.monotonic() - self._written_s
        return since_s > max(_PROGRESS_S, _PROGRESS_SHARE * (self._written_s - self._began_s))

    def _lines(
        self, step: int, hits: Sequence[AgentHit], program: Program | None, observed: Observation
    ) -> list[bytes]:
        written = [hit for hit in hits if self._counts.setdefault(hit.watchpoint, _Count()).add(hit, step)]
        lines = []
        if written:
            positions = {slot_id: position for position, slot_id in enumerate(observed.seen)}
            nodes = {} if program is None else {node.name: node for node in program.nodes}
            graph = "" if program is None else program.name
            slot_ids = [hit.tensor_slot.slot_id for hit in written]
            statistics = observed.columns.take(slot_ids).columns()
            for row, hit in enumerate(written):
                values = {name: column[row].item() for name, column in statistics.items() if np.isfinite(column[row])}
                position = positions.get(hit.tensor_slot.slot_id, len(positions))
                lines.append(_hit(hit, step, position, graph, nodes.get(hit.tensor_slot.node.name), values).line())
        self._steps_with_hits += 1
        if self._steps_with_hits & (self._steps_with_hits - 1) == 0:
            lines.append(self._line_of_counts(step))
        return lines

    def _line_of_counts(self, step: int) -> bytes:
        counts = {
            str(number): [count.hits, len(count.tensors), count.last_step] for number, count in self._counts.items()
        }
        return line_of({"counts": counts, "step": step})

    # --- keeping the last steps ---

    def _keep(self, step: int, hits: Sequence[AgentHit]) -> list[bytes]:
        """Stop recording, if a rank has asked for that and its step is recorded; return a line if so."""
        if self._kept_from is None:
            self._ask_to_keep(step, hits)
            self._kept_from = self._step_of_mark()
        if self._kept_from is None or step < self._kept_from:
            return []
        self._recorder.close()
        if self._framework.rank == 0:
            report(f"a watchpoint hit at step {self._kept_from}: the last steps are kept, and no more are recorded")
        return [line_of({"kept": step})]

    def _ask_to_keep(self, step: int, hits: Sequence[AgentHit]) -> None:
        """Ask all ranks to keep their last steps, unless one has, for a new hit that breaks the training."""
        breaking = {watchpoint.id for watchpoint in self.watchpoints if watchpoint.severity is Severity.ERROR}
        if self.folder is None or not any(hit.is_new and hit.watchpoint in breaking for hit in hits):
            return
        try:
            number = os.open(self.folder / MARK, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return
        with open(number, "wb", buffering=0) as file:
            file.write(json.dumps({"rank": self._framework.rank, "step": step}).encode())

    def _step_of_mark(self) -> int | None:
        """Return the step of the hit for which the last steps are kept; None if none is, as far as this rank sees."""
        if self.folder is None or not (mark := self.folder / MARK).exists():
            return None
        with mark.open("rb") as file:
            content = file.read(_MOST_MARK)
        try:
            return int(json.loads(content)["step"])
        except (ValueError, KeyError, TypeError):
            # It is being written.
            return None

    def _end(self, error: Exception) -> None:
        self.is_on = False
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error) or repr(error)
        log(f"this rank no longer writes what it sees, the training goes on: {reason}")


class _Count:
    """The hits of a watchpoint."""

    def __init__(self) -> None:
        self.hits = self.last_step = 0
        self.tensors: set[int] = set()
        self._written: set[int] = set()
        self._following = 0

    def add(self, hit: AgentHit, step: int) -> bool:
        """Count a hit; return whether it is written."""
        slot_id = hit.tensor_slot.slot_id
        self.hits += 1
        self.last_step = step
        self.tensors.add(slot_id)
        if slot_id in self._written or len(self._written) - self._following >= MOST_NEW:
            return False
        if not hit.is_new:
            if self._following >= MOST_FOLLOWING:
                return False
            self._following += 1
        self._written.add(slot_id)
        return True


def _hit(
    hit: AgentHit, step: int, position: int, graph: str, node: TracedNode | None, values: dict[str, Any]
) -> RankHit:
    declared = hit.tensor_slot.node
    source = None
    if node is not None and node.stack:
        frame = user_frame(node.stack) or node.stack[0]
        source = SourceLine(frame.file, frame.line, frame.function, frame.code)
    return RankHit(
        step=step,
        watchpoint=hit.watchpoint,
        node=declared.name,
        type=declared.type,
        slot=hit.tensor_slot.slot,
        io=hit.tensor_slot.io,
        graph=graph,
        position=position,
        is_new=hit.is_new,
        actual=dict(hit.actual),
        parameters_hit=hit.parameters_hit,
        error_code=hit.error_code,
        since=None if hit.since is None else step_of(hit.since.iteration),
        values=values,
        source=source,
    )
