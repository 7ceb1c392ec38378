"""What an adapter tells of a training, without a server: every step with its program and its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tensight.agents.core.columns import StatisticsColumns
from tensight.agents.core.retention import Retention
from tensight.agents.core.scalars import Scalars
from tensight.agents.core.settings import AgentSettings
from tensight.agents.core.slots import DeclaredNode, Need, SlotTable
from tensight.agents.core.watching.checks import LossScaling
from tensight.agents.torch.debugger import Debugger

if TYPE_CHECKING:
    from tensight.agents.core.program import Program, TracedNode
    from tensight.agents.core.reader import TensorReader
    from tensight.tensors import TensorStatistics


@dataclass(frozen=True)
class SeenStep:
    """A step as the agent was told of it.

    Attributes
    ----------
    program : Program
    rows : dict of (str, int, str) to TensorStatistics
        By node, slot and io, in the order in which they were seen; a tensor without statistics has None.
    skipped : bool
    """

    program: Program
    rows: dict[tuple[str, int, str], TensorStatistics | None]
    skipped: bool

    def node(self, name: str) -> TracedNode:
        return next(node for node in self.program.nodes if node.name == name)

    def names(self, start: str = "") -> list[str]:
        """Names of operators, in their order."""
        return [node.name for node in self.program.nodes if node.role == "operator" and node.name.startswith(start)]

    def of(self, node: str, slot: int = 0, io: str = "output") -> TensorStatistics:
        found = self.rows[node, slot, io]
        assert found is not None
        return found


@dataclass
class SeeingAgent:
    """Stands where the agent stands, wants every tensor, and keeps what it is told."""

    settings: AgentSettings
    framework: Any
    reader: TensorReader
    script: str = ""
    need: Need = Need.ROW
    capturing: bool = True
    stops_at_nodes: bool = False
    wants_operators: bool = False
    closed: bool = False
    error: BaseException | None = None
    step: int = 0
    slot_table: SlotTable = field(default_factory=SlotTable)
    columns: StatisticsColumns = field(default_factory=StatisticsColumns)
    initial: SeenStep | None = None
    steps: list[SeenStep] = field(default_factory=list)
    nodes_done: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    running: Any = field(default_factory=lambda: SimpleNamespace(program=None))
    diagnosing: None = None
    order: list[int] = field(default_factory=list)
    records: Any = field(
        default_factory=lambda: SimpleNamespace(are_written=False, tracer=SimpleNamespace(is_on=False))
    )
    checks: Any = field(
        default_factory=lambda: SimpleNamespace(scaling=LossScaling(), watches=SimpleNamespace(any=False))
    )

    def __post_init__(self) -> None:
        self.slot_table.decide_needs(lambda _: self.need)
        self.scalars = Scalars(self.reader, self.columns)
        self.retention = Retention(self.reader)

    def attach(self, program: Program) -> None:
        self.initial = self._seen(program, False)

    def observe(self, slot_id: int, tensor: Any, need: int, same: int | None = None) -> None:
        assert need == self.need
        self.columns.reserve(slot_id + 1)
        self.columns.iteration[slot_id] = -2
        self.reader.scan(tensor, self.columns, slot_id)
        self.order.append(slot_id)
        if same is not None:
            row, known = self.columns.statistics(slot_id), self.columns.statistics(same)
            assert row is not None
            assert known is not None
            assert same in self.order
            assert repr(known) == repr(replace(row, shape=known.shape))

    @property
    def observed(self) -> SeeingAgent:
        """What is observed is all there is."""
        return self

    @property
    def shows_news(self) -> bool:
        return False

    def observe_once(self, slot_id: int, tensor: Any) -> None:
        if slot_id >= len(self.columns.iteration) or self.columns.iteration[slot_id] != self.columns.current_iteration:
            self.observe(slot_id, tensor, int(Need.ROW))

    def was_written_unnoticed(self, _slot_id: int, _tensor: Any) -> bool:
        """Nothing is traced here."""
        return False

    def report(self, text: str) -> None:
        self.reports.append(text)

    def withdraw(self, text: str) -> None:
        self.reports.remove(text)

    def offer_operator_capture(self) -> None:
        """Nobody asks for it."""

    def diverges(self, *, is_known: bool) -> None:
        """Nothing is decided within a step."""

    def node_done(self, node: DeclaredNode) -> None:
        self.nodes_done.append(node.name)

    def step_done(self, program: Program, *, scaled_skip: bool = False) -> None:
        self.step += 1
        self.steps.append(self._seen(program, scaled_skip))

    def ended_by(self, error: BaseException | None) -> None:
        self.error = error

    def close(self) -> None:
        self.closed = True

    def _seen(self, program: Program, skipped: bool) -> SeenStep:
        self.reader.settle(self.columns)
        rows: dict[tuple[str, int, str], TensorStatistics | None] = {}
        for number in dict.fromkeys(self.order):
            tensor_slot = self.slot_table[number]
            scanned = self.columns.iteration[number] == self.columns.current_iteration
            rows[tensor_slot.node.name, tensor_slot.slot, tensor_slot.io] = (
                self.columns.statistics(number) if scanned else None
            )
        self.order.clear()
        self.columns.current_iteration = self.step
        return SeenStep(program, rows, skipped)


class Seen:
    """A debugger whose agent keeps what it sees; use it as a context."""

    def __init__(self, *subjects: Any, need: Need = Need.ROW, stops_at_nodes: bool = False, **settings: Any) -> None:
        self.debugger = Debugger(
            subjects,
            AgentSettings(**settings),
            agent_of=lambda *arguments, **named: SeeingAgent(
                *arguments, need=need, stops_at_nodes=stops_at_nodes, **named
            ),
        )

    def __enter__(self) -> Seen:
        self.debugger.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.debugger.__exit__(*error)

    @property
    def agent(self) -> SeeingAgent:
        agent: Any = self.debugger.agent
        return agent

    @property
    def steps(self) -> Sequence[SeenStep]:
        return self.agent.steps
