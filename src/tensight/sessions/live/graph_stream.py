"""Graphs that a process sends: written to files as they arrive, and read when they are complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensight import wire
from tensight.errors import InputError
from tensight.sessions.errors import LimitError
from tensight.sessions.live.recording import storing
from tensight.sessions.live.shielded import shielded_in_thread
from tensight.sessions.live.turns import in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tensight.dumps.growing_files import GraphFile
    from tensight.dumps.recorder import RankRecorder
    from tensight.graph import Graph
    from tensight.sessions.live.settings import LiveSettings
    from tensight.wire.debugger_pb2 import Chunk

MOST_GRAPHS = 4096
MOST_SOURCES = 10_000
MOST_SOURCE_BYTES = 64 * 2**20
"""Total size of the source files of a process."""

MOST_OPERATORS = 5_000_000
"""Operators in the execution order of a graph."""

_UNWRITTEN_BYTES = 8 * 2**20


@dataclass(slots=True)
class ReceivedGraphs:
    """Graphs that have arrived completely.

    Attributes
    ----------
    graphs : list of (GraphFile, Graph)
        The files are temporary; they have not been moved to their place yet.
    orders : dict of str to tuple of str
        Full names of operators in execution order, by graph name, if the process sent an order.
    sources : dict of str to str
        Texts of source files by path.
    """

    graphs: list[tuple[GraphFile, Graph]] = field(default_factory=list)
    orders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def discard(self) -> None:
        """Delete the files."""
        for file, _ in self.graphs:
            file.discard()


class GraphStream:
    """The chunks of a call as they arrive.

    Parameters
    ----------
    recorder : RankRecorder
        Creates the files of the graphs.
    several : bool
        Whether a chunk marked as finished ends each graph; otherwise all chunks form a single graph.
    settings : LiveSettings
        Contains the limits on graphs.
    where : str
        The sender, for messages.
    """

    def __init__(self, recorder: RankRecorder, *, several: bool, settings: LiveSettings, where: str) -> None:
        self._recorder = recorder
        self._several = several
        self._most_bytes = settings.most_graph_bytes
        self._most_nodes = settings.most_nodes
        self._most_parts = settings.most_nodes * settings.most_parts_per_node
        self._where = where
        self._received = ReceivedGraphs()
        self._file: GraphFile | None = None
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self._bytes = 0
        self._source_bytes = 0
        self._order: list[str] = []

    async def receive(self, chunks: AsyncIterator[Chunk]) -> ReceivedGraphs:
        """Receive all chunks.

        Raises
        ------
        GraphError
            The data are not a graph, or the graph has more nodes than accepted.
        InputError
            The stream ends within a graph.
        LimitError
            The graphs are larger than accepted.
        StorageError
            They cannot be written.
        """
        complete = False
        try:
            async for chunk in chunks:
                await self._take(chunk)
            if self._file is not None or self._unwritten:
                if self._several:
                    raise InputError(f"{self._where}: the last graph ends before its end; send the graphs again")
                await self._finish()
            complete = True
            return self._received
        finally:
            if not complete:
                self._discard()

    async def _take(self, chunk: Chunk) -> None:
        self._take_sources(chunk)
        if len(self._order) + len(chunk.execution_order) > MOST_OPERATORS:
            raise LimitError(f"{self._where}: an order of more than {MOST_OPERATORS:,} operators is not accepted")
        self._order += map(wire.name, chunk.execution_order)
        self._bytes += len(chunk.buffer) + sum(map(len, chunk.execution_order))
        if self._bytes > self._most_bytes:
            raise LimitError(
                f"{self._where}: the graphs have more than {self._most_bytes:,} bytes, which is more than is accepted"
            )
        if chunk.buffer:
            self._unwritten.append(chunk.buffer)
            self._unwritten_bytes += len(chunk.buffer)
        if self._several and chunk.finished:
            await self._finish()
        elif self._unwritten_bytes >= _UNWRITTEN_BYTES:
            await shielded_in_thread(self._write)

    def _take_sources(self, chunk: Chunk) -> None:
        for source in chunk.sources:
            self._source_bytes += len(source.file) + len(source.text)
            # The text of a file is dispensable; the graph is not.
            if self._source_bytes <= MOST_SOURCE_BYTES and len(self._received.sources) < MOST_SOURCES:
                self._received.sources[wire.name(source.file)] = wire.text(source.text, len(source.text))

    async def _finish(self) -> None:
        if len(self._received.graphs) >= MOST_GRAPHS:
            raise LimitError(f"{self._where}: more than {MOST_GRAPHS:,} graphs are not accepted")
        file = await shielded_in_thread(self._write)
        graph = await in_turns(file.read(self._where, most_nodes=self._most_nodes, most_parts=self._most_parts))
        self._received.graphs.append((file, graph))
        self._file = None
        if self._order:
            self._received.orders[graph.name] = tuple(self._order)
        self._order = []

    def _write(self) -> GraphFile:
        with storing(self._recorder.folder):
            if self._file is None:
                self._file = self._recorder.new_graph()
            self._file.write(self._unwritten)
        self._unwritten, self._unwritten_bytes = [], 0
        return self._file

    def _discard(self) -> None:
        self._received.discard()
        if self._file is not None:
            self._file.discard()
