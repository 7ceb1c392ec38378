"""The summary of a session, its events, and commands to it."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

from pydantic import Field

from tensight.sessions.records.base import Record


class State(str, Enum):
    """State of a session, or of one of its processes."""

    CONNECTING = "connecting"
    """A process has announced itself; its graph has not arrived completely."""
    PAUSED = "paused"
    """Everything is stopped and can be inspected; commands are taken."""
    SENDING = "sending"
    """A command is waiting to be fetched by the process."""
    RUNNING = "running"
    """The training runs, or an offline session checks steps."""
    MISMATCH = "mismatch"
    """The process speaks a version of the protocol that is not supported; it can only be terminated."""
    FINISHED = "finished"
    """The training has completed."""
    TERMINATED = "terminated"
    """A user ended the training or closed the session."""
    LOST = "lost"
    """The process disconnected unexpectedly; it may still reconnect."""
    FAILED = "failed"
    """The session cannot be used; `message` contains the reason."""

    @property
    def has_ended(self) -> bool:
        """Whether the session or process has ended; a lost process may still reconnect."""
        return self in (State.FINISHED, State.TERMINATED, State.LOST, State.FAILED)


class Capabilities(Record):
    """The capabilities of a session; clients check these instead of the kind of session."""

    live: bool = False
    """A training process is, or was, attached."""
    can_pause: bool = False
    can_terminate: bool = False
    """Terminating ends the training (live), or closes the session."""
    can_step: bool = False
    """Continue by a number of steps."""
    can_step_back: bool = False
    can_go_to_step: bool = False
    can_next_node: bool = False
    can_previous_node: bool = False
    can_run_to_node: bool = False
    can_edit_watchpoints: bool = False
    """Watchpoints can be changed now."""
    can_recheck: bool = False
    can_look_closer: bool = False
    """Only module calls are captured; every operator can be captured from the next step on, which may show where an
    anomaly began: no weight contains NaN or Inf yet."""
    can_draw_graph: bool = False
    """False if a graph has more nodes than ``--max-graph-node-size``; it can still be listed and searched."""
    has_previous_values: bool = False
    """Previous values of tensors other than parameters can be compared."""
    has_execution_history: bool = False
    has_origin: bool = False
    """The first producer of an anomaly can be named."""
    has_statistics_table: bool = False
    """Statistics of all tensors of a step can be listed."""
    views_at_source: bool = False
    """Slices and pictures are computed in the training process; whole tensors are not transferred."""


class OngoingHits(Record):
    """Hits for which a training does not stop, because they continue, or follow from, reported hits."""

    step: int
    """The last step with reports."""
    since: int
    """The step since which there have been hits."""
    tensors: int
    """Tensors with such a hit in `step`."""


class RankRecord(Record):
    """A rank of a run."""

    rank: int
    state: State
    step: int = 0
    """Number of completed steps; 0 is the state before the first update."""
    node: str = ""
    """The operator at which the process is stopped, if it stops at operators."""
    graph: str = ""
    """The graph that is running, or ran last."""
    graphs: tuple[str, ...] = ()
    """Names of its graphs."""
    address: str = ""
    """Host and port from which the process connected, or the machine that the dump's device table names."""
    device: str = ""
    """Number or name of its device."""
    process_id: int | None = None
    last_seen: float | None = None
    """Time of the last message from the process."""
    message: str = ""
    """Message about this rank for users; may be empty."""


class SessionRecord(Record):
    """Summary of a session."""

    id: str
    name: str
    """Name of the job, or the dump's path relative to the base directory."""
    state: State
    message: str = ""
    """Message for users that explains the state; may be empty."""
    step: int = 0
    """The shown step, which is the number of completed steps; 0 is the state before the first update."""
    present_step: int | None = None
    """While an earlier step of a training is shown: the step at which the training is stopped."""
    total_steps: int | None = None
    """The last step of the run; None while a training may continue."""
    node: str = ""
    graph: str = ""
    framework: str = ""
    framework_version: str = ""
    backend: str = ""
    """GPU, Ascend or CPU."""
    created: float
    ranks: tuple[RankRecord, ...] = ()
    capabilities: Capabilities = Capabilities()
    watchpoints: int = 0
    hits: int = 0
    """Tensors with a hit in the current step."""
    findings: int = 0
    """Findings: why the training does not learn."""
    ongoing: OngoingHits | None = None
    """Hits that continue after a stop at an earlier step, without stopping the training."""
    outdated: bool = False
    """Watchpoints changed since the step was checked; recheck."""
    closer_command: str = ""
    """The command of another run with every operator captured; empty if this run captures every operator, or still can
    (``can_look_closer``)."""
    recommended_offered: bool = False
    """The recommended watchpoints were accepted or declined."""
    last_event: int = 0
    """Number of the newest event."""
    dump: str = ""
    """Name under which `DumpRecord` lists the run; empty if nothing is on disk."""
    fresh: bool = False
    """A script opened it: it started without watchpoints, stores none, and is closed when the script ends."""


class DumpRecord(Record):
    """A dump that can be opened, or a recorded run."""

    name: str
    """Path relative to the base directory, or ``runs/ID`` for a recorded run; used to open it."""
    title: str = ""
    """Display name: the name of the recorded job, otherwise `name`."""
    ranks: tuple[int, ...] = ()
    framework: str = ""
    framework_version: str = ""
    modified: float | None = None
    session: str | None = None
    """Id of the session that has it open."""
    problem: str = ""
    """Why it cannot be opened; empty if it can."""


class Event(Record):
    """A change that clients of a session must know; events are numbered without gaps from 1."""

    number: int
    time: float
    kind: Literal[
        "state",
        "graph",
        "watchpoints",
        "hits",
        "tensor",
        "progress",
        "rank",
        "message",
        "closed",
        "comparison",
        "findings",
    ]
    data: dict[str, Any] = Field(default_factory=dict)
    """``state``: a `SessionRecord`; ``rank``: a `RankRecord`; ``graph``: ``{rank, graphs}``; ``watchpoints``: ``{}``;
    ``hits``: ``{step, total}``; ``tensor``: ``{address, status}``; ``progress``: ``{what, done, total}``;
    ``message``: ``{level, text}``; ``closed``: ``{reason}``; ``findings``: ``{rules}``, those of new
    findings; ``comparison``, of the server: a `ComparisonRecord`."""


class EventPage(Record):
    """A page of events."""

    events: tuple[Event, ...]
    last: int
    """Request events after this number next."""
    missed: bool = False
    """Whether events before the first one were dropped; read the session again."""


class Command(Record):
    """A command to a session."""

    action: Literal[
        "continue",
        "pause",
        "terminate",
        "recheck",
        "next_node",
        "previous_node",
        "run_to_node",
        "look_closer",
        "go_to_step",
        "step_back",
    ]
    steps: int = Field(default=-1, ge=-1, le=2**31 - 1)
    """``continue``, ``look_closer``: number of steps, -1 until something stops it; ``go_to_step``: the step;
    ``step_back``: number of steps, -1 counts as 1."""
    stop_on: Literal["new", "every"] = "new"
    """``continue``: stop at new hits that are not caused by reported ones, or at every hit."""
    rank: int | None = None
    """``run_to_node``, ``previous_node``: the rank; by default any rank, or all."""
    graph: str = ""
    node: str = ""
    """``run_to_node``: the node; ``previous_node``: the node to go back to, by default the previous one."""
