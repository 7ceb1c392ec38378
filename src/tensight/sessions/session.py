"""A session: one person debugging one run. Online and offline sessions have this one interface.

Everything runs in one event loop; what computes or reads files runs in a thread that the method awaits. Methods that
change a session take its lock, so one command runs at a time.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tensight.sessions.errors import StateError
from tensight.sessions.events import EventLog
from tensight.sessions.graph_index import GraphIndexes
from tensight.sessions.hit_list import HitList
from tensight.sessions.records import State
from tensight.sessions.watchpoint_list import WatchpointList

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tensight.graph import Graph, TensorAddress
    from tensight.sessions.records import (
        Capabilities,
        Command,
        ConditionRecord,
        ExecutionPage,
        GraphLevel,
        GraphRecord,
        HitPage,
        NodeRecord,
        OriginRecord,
        RelationGraph,
        SearchPage,
        SessionRecord,
        SourcePage,
        StatisticsPage,
        StatisticsRow,
        TensorRecord,
        TreePage,
        WatchpointChange,
        WatchpointRecord,
        WatchpointSpec,
        Which,
    )
    from tensight.sessions.workspace import Workspace
    from tensight.tensors.views import View, ViewResult
    from tensight.watchpoints import Platform


class Session(ABC):
    """One run being debugged.

    What needs only graphs, watchpoints and hits is done here; a subclass brings the run: its graphs, its tensors, and
    how it goes on.

    Parameters
    ----------
    session_id : str
    name : str
        Of the job, or of the dump. Watchpoints of an earlier session of this name are there again.
    workspace : Workspace or None
        Where watchpoints are kept; None keeps them nowhere.
    platform : Platform or None
        The kind of device the run is on; None while it is unknown.
    most_drawn_nodes : int
        A graph with more nodes is listed and searched, but not drawn.

    Attributes
    ----------
    events : EventLog
    lock : asyncio.Lock
        Held while a command changes the session.
    watchpoint_list : WatchpointList
    hit_list : HitList
        The hits of the step that is shown; the subclass fills it.
    """

    def __init__(
        self,
        session_id: str,
        name: str,
        *,
        workspace: Workspace | None,
        platform: Platform | None = None,
        most_drawn_nodes: int = 100_000,
    ) -> None:
        self.id = session_id
        self.name = name
        self.platform = platform
        self.most_drawn_nodes = most_drawn_nodes
        self.created = time.time()
        self.events = EventLog()
        self.lock = asyncio.Lock()
        self.graph_indexes = GraphIndexes()
        self.hit_list = HitList()
        self.watchpoint_list = WatchpointList(name, workspace, self.graphs, self.graph_indexes)
        for problem in self.watchpoint_list.problems:
            self.warn(problem)

    # --- what a subclass brings ---

    @property
    @abstractmethod
    def state(self) -> State:
        """What the session is doing."""

    @property
    @abstractmethod
    def step(self) -> int:
        """Steps done; iteration ``step - 1`` is what is shown, -1 being the state before the first update."""

    @property
    @abstractmethod
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the run, in order."""

    @abstractmethod
    def graphs(self, rank: int) -> tuple[Graph, ...]:
        """Return the graphs of a rank. NotFoundError for an unknown rank."""

    @abstractmethod
    def record(self) -> SessionRecord:
        """Return the session at a glance."""

    @abstractmethod
    def position(self, rank: int, graph: str, node: str) -> int | None:
        """Return where a node stands in the order of execution, None if that is not known."""

    @abstractmethod
    async def tensors_of(
        self, rank: int, graph: str, node: str, iteration: int | None = None
    ) -> tuple[TensorRecord, ...]:
        """Return the inputs and outputs of a node at an iteration (default: the one that is shown), with statistics."""

    @abstractmethod
    async def value(self, address: TensorAddress) -> NDArray[np.generic]:
        """Return a tensor, as a read-only array that may be a map of a file.

        Raises
        ------
        NotFoundError
            There is no such tensor.
        UnavailableError
            Its value was not kept, or the process did not answer.
        StateError
            It has to come from the process, and that runs.
        """

    @abstractmethod
    def previous(self, address: TensorAddress) -> TensorAddress | None:
        """Return the same tensor in the step before, as far as one can be asked for; None if there is none."""

    @abstractmethod
    async def statistics_over_steps(self, address: TensorAddress) -> tuple[StatisticsRow, ...]:
        """Return the statistics of a tensor at all iterations where they are known, in order."""

    @abstractmethod
    async def statistics_table(
        self,
        *,
        rank: int | None = None,
        iteration: int | None = None,
        query: str = "",
        sort: str = "position",
        descending: bool = False,
        offset: int = 0,
        limit: int = 100,
    ) -> StatisticsPage:
        """Return the statistics of all tensors of an iteration (default: the one shown) that are known."""

    @abstractmethod
    async def executions(self, rank: int, offset: int = 0, limit: int = 100) -> ExecutionPage:
        """Return which graphs ran in which step."""

    @abstractmethod
    async def origins(self) -> tuple[OriginRecord, ...]:
        """Return where anomalies began, as far as what is known up to the step shown allows."""

    @abstractmethod
    async def command(self, command: Command) -> SessionRecord:
        """Start, stop or move the run; returns as soon as the command is accepted, not when it is done.

        Raises
        ------
        StateError
            Not possible now, or not in this session.
        """

    @abstractmethod
    async def close(self, reason: str) -> None:
        """Tell whoever waits, stop what runs, and release files. A closed session only knows its log."""

    # --- what a subclass may bring ---

    def editable(self) -> None:
        """Refuse if watchpoints may not be changed now; by default they may while the run is paused.

        Raises
        ------
        StateError
            They may not; the message says when they may.
        """
        if self.state is not State.PAUSED:
            raise StateError(f"watchpoints can be changed while the run is paused; it is {self.state.value}")

    async def watchpoints_changed(self) -> None:
        """Take notice of changed watchpoints; by default clients are told that the session looks different.

        The session's lock is held; the list is changed, saved and announced.
        """
        self.events.append_state(self.record())

    def source_texts(self) -> Mapping[str, str]:
        """Return the text of files of code by path, as far as the training process sent them."""
        return {}

    # --- what a subclass uses ---

    async def graphs_changed(self) -> None:
        """Work out what the watchpoints watch; to be called whenever graphs are there for the first time or changed."""
        raise NotImplementedError

    def warn(self, text: str) -> None:
        """Tell the clients about something that went wrong and can be lived with."""
        self.events.append("message", level="warning", text=text)

    # --- what follows from graphs, watchpoints and hits ---

    def capabilities(self) -> Capabilities:
        """Return what can be done now."""
        raise NotImplementedError

    async def graph_records(self, rank: int | None = None) -> tuple[GraphRecord, ...]:
        """Return the graphs of a rank, or of all."""
        raise NotImplementedError

    async def tree(
        self,
        rank: int,
        graph: str,
        scope: str = "",
        *,
        watchpoint: int | None = None,
        offset: int = 0,
        limit: int = 1000,
    ) -> TreePage:
        """Return the rows directly below a scope; below the root also the groups of parameters and constants."""
        raise NotImplementedError

    async def search(
        self,
        *,
        name: str = "",
        op_type: str = "",
        kind: str = "",
        stack: str = "",
        rank: int | None = None,
        graph: str = "",
        regex: bool = False,
        case_sensitive: bool = False,
        watchpoint: int | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> SearchPage:
        """Find nodes that match all that is given."""
        raise NotImplementedError

    async def node(self, rank: int, graph: str, name: str) -> NodeRecord:
        """Return all that the graph says about a node."""
        raise NotImplementedError

    async def level(self, rank: int, graph: str, scope: str = "", limit: int = 1500) -> GraphLevel:
        """Return a scope opened, for drawing."""
        raise NotImplementedError

    async def relations(self, address: TensorAddress, hops: int = 1, limit: int = 200) -> RelationGraph:
        """Return a tensor's node with what feeds it and what reads that slot."""
        raise NotImplementedError

    async def sources(self, query: str = "", offset: int = 0, limit: int = 10) -> SourcePage:
        """Return the lines of code that made nodes; `query` is a part of ``path:line code``, in any case."""
        raise NotImplementedError

    async def source_text(self, file: str) -> str:
        """Return the text of a file of code that the training process sent. NotFoundError if it sent none."""
        raise NotImplementedError

    def conditions(self) -> tuple[ConditionRecord, ...]:
        """Return the conditions, each with whether it can be watched for in this session now."""
        raise NotImplementedError

    def watchpoints(self) -> tuple[WatchpointRecord, ...]:
        """Return the watchpoints, by id."""
        raise NotImplementedError

    async def create_watchpoint(self, spec: WatchpointSpec) -> WatchpointRecord:
        """Add a watchpoint."""
        raise NotImplementedError

    async def change_watchpoint(self, watchpoint: int, change: WatchpointChange) -> WatchpointRecord:
        """Change a watchpoint."""
        raise NotImplementedError

    async def delete_watchpoints(self, watchpoints: Sequence[int] | None = None) -> None:
        """Delete some watchpoints, or all."""
        raise NotImplementedError

    async def recommend(self, accept: bool) -> tuple[WatchpointRecord, ...]:
        """Create the recommended watchpoints, or note that they are not wanted; once in a session."""
        raise NotImplementedError

    async def hits(
        self,
        *,
        rank: int | None = None,
        graph: str = "",
        watchpoint: int | None = None,
        focus: str = "",
        offset: int = 0,
        limit: int = 10,
    ) -> HitPage:
        """Return the nodes with hits of the current step in execution order; `focus`: the page that has this node."""
        raise NotImplementedError

    async def view(self, address: TensorAddress, view: View, which: Which = "current") -> ViewResult:
        """Return a slice, picture, histogram or the statistics of a tensor, of its previous value, or of both.

        Computed where the tensor lives: a subclass overrides this if a process can do it.
        """
        raise NotImplementedError
