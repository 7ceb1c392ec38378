"""The session at a glance, its events, and commands to it."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

from pydantic import Field

from tensight.sessions.records.base import Record


class State(str, Enum):
    """What a session, or one process of it, is doing."""

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
    """The training ended by itself."""
    TERMINATED = "terminated"
    """A person ended the training from here."""
    LOST = "lost"
    """The process went away without a word; it may come back for a while."""
    FAILED = "failed"
    """The session cannot be used; `message` says why."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing will run in this session any more, unless a lost process comes back."""
        return self in (State.FINISHED, State.TERMINATED, State.LOST, State.FAILED)


class Capabilities(Record):
    """What can be done in a session; a page asks for these, never for the kind of session."""

    live: bool = False
    """A training process is, or was, attached."""
    can_pause: bool = False
    can_terminate: bool = False
    """Terminate ends the training (live), or closes the session."""
    can_step: bool = False
    """Continue by a number of steps."""
    can_step_back: bool = False
    can_go_to_step: bool = False
    can_next_node: bool = False
    can_previous_node: bool = False
    can_run_to_node: bool = False
    can_edit_watchpoints: bool = False
    """Watchpoints may be changed now."""
    can_recheck: bool = False
    can_look_closer: bool = False
    """Calls of modules are captured; every operator can be from the next step on."""
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
    """Slices and pictures are computed in the training process; whole tensors do not travel for them."""


class OngoingHits(Record):
    """Hits for which a training does not stop: they were reported before, or follow from what was."""

    step: int
    """The last step of which they are known."""
    since: int
    """The step since which there are any."""
    tensors: int
    """Tensors with such a hit in `step`."""


class RankRecord(Record):
    """One rank of a run."""

    rank: int
    state: State
    step: int = 0
    """Steps done; 0 is the state before the first update."""
    node: str = ""
    """The operator that the process stands at, if it stops at operators."""
    graph: str = ""
    """The graph that ran last or runs."""
    graphs: tuple[str, ...] = ()
    """Names of its graphs."""
    address: str = ""
    """Host and port from which the process connected, or the machine that the dump's device table names."""
    device: str = ""
    """Number or name of its device."""
    process_id: int | None = None
    last_seen: float | None = None
    """When the process was last heard of."""
    message: str = ""
    """What a person should know about this rank; empty if nothing."""


class SessionRecord(Record):
    """One person debugging one run: what is known at a glance."""

    id: str
    name: str
    """Name of the job, or the dump's path relative to the base directory."""
    state: State
    message: str = ""
    """Why the session is in this state, for a person; empty if there is nothing to say."""
    step: int = 0
    """Steps done, and the one that is shown; 0 is the state before the first update."""
    present_step: int | None = None
    """While an earlier step of a training is shown: the one at which the training is stopped."""
    total_steps: int | None = None
    """The last step there is; None while a training may go on."""
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
    ongoing: OngoingHits | None = None
    """What goes on hitting while the training runs, without stopping it."""
    outdated: bool = False
    """The step is not checked with the watchpoints as they are; recheck."""
    recommended_offered: bool = False
    """The recommended watchpoints were accepted or refused already."""
    last_event: int = 0
    """Number of the newest event."""
    dump: str = ""
    """Name under which `DumpRecord` lists the run; empty if nothing is on disk."""
    fresh: bool = False
    """A script opened it for itself: it began without watchpoints, keeps none, and is closed when the script ends."""


class DumpRecord(Record):
    """A dump that can be opened, or a recorded run."""

    name: str
    """Path relative to the base directory, or ``runs/ID`` for a recorded run; what opening asks for."""
    title: str = ""
    """What a person calls it: the name of the job that was recorded, otherwise `name`."""
    ranks: tuple[int, ...] = ()
    framework: str = ""
    framework_version: str = ""
    modified: float | None = None
    session: str | None = None
    """Id of the session that has it open."""
    problem: str = ""
    """Why it cannot be opened; empty if it can."""


class Event(Record):
    """Something that clients of a session must know; events are numbered without gaps from 1."""

    number: int
    time: float
    kind: Literal[
        "state", "graph", "watchpoints", "hits", "tensor", "progress", "rank", "message", "closed", "comparison"
    ]
    data: dict[str, Any] = Field(default_factory=dict)
    """``state``: a `SessionRecord`; ``rank``: a `RankRecord`; ``graph``: ``{rank, graphs}``; ``watchpoints``: ``{}``;
    ``hits``: ``{step, total}``; ``tensor``: ``{address, status}``; ``progress``: ``{what, done, total}``;
    ``message``: ``{level, text}``; ``closed``: ``{reason}``; ``comparison``, of the server: a `ComparisonRecord`."""


class EventPage(Record):
    """Events from a number on."""

    events: tuple[Event, ...]
    last: int
    """Ask for events after this number next."""
    missed: bool = False
    """Events before the first one given were dropped; read the session anew."""


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
    """``continue``, ``look_closer``: how many steps, -1 until something stops it; ``go_to_step``: the step;
    ``step_back``: how many, -1 counts as 1."""
    stop_on: Literal["new", "every"] = "new"
    """``continue``: which hits stop it: those that were not reported before and do not follow from what was, or all."""
    rank: int | None = None
    """``run_to_node``, ``previous_node``: whose; by default any rank, or all."""
    graph: str = ""
    node: str = ""
    """``run_to_node``: the node; ``previous_node``: the one to go back to, by default the one before."""
