"""A real session in which nothing moves: the graphs and tensors of an open dump, or graphs alone."""

# ruff: noqa: ARG002 - what nothing of a still run answers takes its arguments all the same

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tensight.dumps import Dump, read_tensor
from tensight.graph import Edge, Graph, Node, OutputSlot, TensorAddress
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.overview import OverviewChoice
from tensight.sessions.records import (
    Capabilities,
    Command,
    Curves,
    ExecutionPage,
    OriginRecord,
    Overview,
    SessionRecord,
    State,
    StatisticsPage,
    StatisticsRow,
    TensorRecord,
    Timeline,
)
from tensight.sessions.session import Session
from tensight.sessions.workspace import Workspace
from tensight.watchpoints import Platform

FLOAT = OutputSlot(11, "float32", (32, 64))


class StillSession(Session):
    """Stands at one step of a run."""

    def __init__(
        self,
        graphs: Mapping[int, tuple[Graph, ...]],
        *,
        dump: Dump | None = None,
        name: str = "a run",
        workspace: Workspace | None = None,
        platform: Platform | None = None,
        most_drawn_nodes: int = 100_000,
        step: int = 1,
        live: bool = False,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self.now = State.PAUSED
        self.at = step
        self.live = live
        self.by_rank = dict(graphs)
        self.dump = dump
        self.texts = texts or {}
        super().__init__("1", name, workspace=workspace, platform=platform, most_drawn_nodes=most_drawn_nodes)

    @classmethod
    def of_dump(cls, dump: Dump, **options: object) -> StillSession:
        return cls({rank: dump.graphs(rank) for rank in dump.ranks}, dump=dump, **options)  # type: ignore[arg-type]

    @property
    def state(self) -> State:
        return self.now

    @property
    def step(self) -> int:
        return self.at

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(self.by_rank)

    def graphs(self, rank: int) -> tuple[Graph, ...]:
        if rank not in self.by_rank:
            raise NotFoundError(f"there is no rank {rank}")
        return self.by_rank[rank]

    def source_texts(self) -> Mapping[str, str]:
        return self.texts

    def capabilities(self) -> Capabilities:
        return super().capabilities().model_copy(update={"live": self.live})

    def record(self) -> SessionRecord:
        return SessionRecord(
            id=self.id,
            name=self.name,
            state=self.state,
            step=self.step,
            created=self.created,
            capabilities=self.capabilities(),
            watchpoints=len(self.watchpoint_list),
            hits=self.hit_list.tensors,
            outdated=self.hit_list.outdated,
            recommended_offered=self.watchpoint_list.recommended_offered,
            last_event=self.events.last,
        )

    def position(self, rank: int, graph: str, node: str) -> int | None:
        if self.dump is None or node not in self.dump.execution_order(rank):
            return None
        return self.dump.execution_order(rank).index(node)

    async def tensors_of(self, rank: int, graph: str, node: str, step: int | None = None) -> tuple[TensorRecord, ...]:
        return ()

    async def value(self, address: TensorAddress) -> NDArray[np.generic]:
        graph_ids = {graph.name: graph.root_id for graph in self.graphs(address.rank)}
        file = self.dump and self.dump.at(
            address.rank, graph_ids[address.graph], address.iteration, address.node, address.slot, address.io
        )
        if not file:
            raise NotFoundError(f"there is no tensor {address}")
        return read_tensor(file)

    def previous(self, address: TensorAddress) -> TensorAddress | None:
        if address.iteration == 0:
            return None
        return TensorAddress(address.rank, address.graph, address.node, address.slot, address.iteration - 1, address.io)

    async def statistics_over_steps(self, address: TensorAddress) -> tuple[StatisticsRow, ...]:
        return ()

    async def statistics_table(
        self,
        *,
        rank: int | None = None,
        step: int | None = None,
        query: str = "",
        sort: str = "position",
        descending: bool = False,
        offset: int = 0,
        limit: int = 100,
    ) -> StatisticsPage:
        return StatisticsPage(total=0, rows=())

    async def overview(self, rank: int, choice: OverviewChoice, *, read: bool = False) -> Overview:
        return Overview(statistic=choice.statistic, total=0)

    async def timeline(self, rank: int, columns: int = 400) -> Timeline:
        return Timeline(first_step=0, last_step=self.at, present_step=self.at)

    async def curves(self, rank: int, points: int = 400) -> Curves:
        return Curves(rank=rank, last_step=self.at)

    async def executions(self, rank: int, offset: int = 0, limit: int = 100) -> ExecutionPage:
        return ExecutionPage(total=0, executions=())

    async def origins(self) -> tuple[OriginRecord, ...]:
        return ()

    async def command(self, command: Command) -> SessionRecord:
        raise StateError("nothing moves in this session")

    async def close(self, reason: str) -> None:
        self.events.append("closed", reason=reason)


def operator(name: str, *inputs: str, slots: int = 1, stack: tuple[str, ...] = (), kind: str = "") -> Node:
    """An operator whose type is the part of its name before ``-op``."""
    scope, _, short = name.rpartition("/")
    op_type = kind or short.partition("-op")[0]
    return Node(
        name, op_type, scope, name, name, tuple(Edge(source) for source in inputs), (FLOAT,) * slots, stack=stack
    )


def parameter(name: str) -> Node:
    return Node(name, "Parameter", id=name, full_name=name, outputs=(FLOAT,))


def constant(name: str) -> Node:
    return Node(name, "Const", id=name, full_name=name, outputs=(FLOAT,))


def large_graph(nodes: int = 100_000, name: str = "kernel_graph_0") -> Graph:
    """A graph such as a large language model has: a thousand layers, weights, constants, deep stacks."""
    layers = nodes // 100
    made = [parameter(f"layer{layer}.{kind}") for layer in range(layers) for kind in ("weight", "bias")]
    made += [constant(f"Default--data-{layer}") for layer in range(layers)]
    operators = nodes - len(made)
    before = made[0].name
    for number in range(operators):
        layer = number * layers // operators
        scope = f"Default/network/block{layer // 10}/layer{layer}/part{number % 5}"
        if number > operators * 0.6:
            scope = f"Gradients/{scope}"
        kind = ("MatMul", "ReLU", "Add", "LayerNorm")[number % 4]
        stack = tuple(
            f"# In file /home/me/net{depth}.py:{number % 400 + depth}/    x = self.layer{depth}(x)/"
            for depth in range(8)
        )
        inputs = (before, f"layer{layer}.weight", f"Default--data-{layer}")
        node = operator(f"{scope}/{kind}-op{number}", *inputs, stack=stack)
        made.append(node)
        before = node.name
    return Graph(name, made)


@cache
def shared_large_graph() -> Graph:
    """A large graph that was looked at before, perhaps."""
    return large_graph()


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return how long this thread computes; other processes, and searches for garbage of other tests, do not count."""
    gc.disable()
    try:
        begin = time.thread_time()
        work()
        return time.thread_time() - begin
    finally:
        gc.enable()
