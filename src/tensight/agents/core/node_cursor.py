"""Moves through a step that is complete when it is first inspected, operator by operator, forwards and backwards.

Some frameworks show a step only when it is done. At an operator, the user sees the values at the time when it had run:
slots that are written later have their value of the step before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tensight.graph.operator_facts import WITHOUT_RESULTS
from tensight.graph.optimizers import is_of_optimizer

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from tensight.agents.core.connection.commands import Order
    from tensight.agents.core.program import Program, TracedNode
    from tensight.agents.core.slots import SlotTable
    from tensight.agents.core.watching.rules import AgentHit

_BEFORE_ALL = -1


class NodeCursor:
    """The user's position among the operators of a step.

    Parameters
    ----------
    slot_table : SlotTable
        The slots in which tensors are observed.
    """

    def __init__(self, slot_table: SlotTable) -> None:
        self._slot_table = slot_table
        self._nodes: list[str] = []
        self._positions: dict[str, int] = {}
        self._at = 0
        self._hits: list[AgentHit] = []
        self._reported: set[tuple[int, int]] = set()

    def begin(self, program: Program, seen: Iterable[int], hits: Sequence[AgentHit]) -> None:
        """Move to the end of a step.

        Parameters
        ----------
        program : Program
            What ran.
        seen : iterable of int
            Slots that were observed in it, in any order: frameworks run independent operators in parallel, while the
            program's order is the same in every step.
        hits : sequence of AgentHit
            All hits of the step.
        """
        names = {self._slot_table[number].node.name for number in seen}
        operators = [node for node in program.nodes if node.role == "operator"]
        # Operators whose results were not observed compute nothing, or belong to a branch that was not taken.
        self._nodes = [node.name for node in operators if node.name in names or not _has_results(node)]
        self._positions = {name: position for position, name in enumerate(self._nodes)}
        end, written = len(self._nodes), _written(operators, names)
        for node in program.nodes:
            if node.role in ("weight", "state", "buffer"):
                writers = written.others if node.role == "buffer" else written.trained
                self._positions[node.name] = self._positions.get(writers.get(node.name, ""), end)
            elif node.role != "operator":
                self._positions[node.name] = _BEFORE_ALL
        self._at = len(self._nodes)
        self._hits = list(hits)
        self._reported.clear()

    def rewind(self) -> None:
        """Move before the first operator."""
        self._at = _BEFORE_ALL

    def leave(self) -> None:
        """Move to the end of the step, because the training goes on."""
        self._at = len(self._nodes)

    @property
    def is_within(self) -> bool:
        """Whether there are further operators in the step."""
        return self._at < len(self._nodes)

    @property
    def node(self) -> str:
        """Full name of the operator that has just run; empty at the end of the step."""
        return self._nodes[self._at] if 0 <= self._at < len(self._nodes) else ""

    def has_run(self, slot_id: int) -> bool:
        """Whether a slot had its value of this step when the operator had run."""
        return not self.is_within or self._position(slot_id) <= self._at

    def follow(self, order: Order) -> bool:
        """Move as an order says within the step; return whether the training is stopped there.

        If not, the order continues from the end of the step.
        """
        end = len(self._nodes)
        if order.back:
            before = (position for position in range(self._at - 1, -1, -1) if order.node in ("", self._nodes[position]))
            self._at = next(before, self._at)
            return True
        if self._at == end:
            return False
        if order.at_nodes:
            stops = {self._position(hit.tensor_slot.slot_id) for hit in self._unreported if hit.is_new}
            following = range(self._at + 1, end)
            candidates = (
                position for position in following if order.node in ("", self._nodes[position]) or position in stops
            )
            self._at = next(candidates, end)
            return True
        self._at = end
        return order.steps == 1 or any(hit.is_new for hit in self._unreported)

    def replace_hits(self, hits: Sequence[AgentHit]) -> None:
        """Replace the hits of a step that was checked again; those that were reported are not reported again."""
        self._hits = list(hits)

    def tell(self) -> list[AgentHit]:
        """Return the hits to report here: those on the operator, and resulting ones that were passed on the way to it.

        At the end of the step, all remaining hits are reported.
        """
        hits = [hit for hit in self._unreported if not self.is_within or self._is_reported_here(hit)]
        self._reported.update(map(_key, hits))
        return hits

    def tell_again(self, hits: Sequence[AgentHit]) -> list[AgentHit]:
        """Return the hits on what has run, in a step that was checked again; the others are reported later."""
        self._hits = list(hits)
        reached = [hit for hit in hits if self.has_run(hit.tensor_slot.slot_id)]
        self._reported = set(map(_key, reached))
        return reached

    def _is_reported_here(self, hit: AgentHit) -> bool:
        position = self._position(hit.tensor_slot.slot_id)
        return position == self._at or (position < self._at and not hit.is_new)

    @property
    def _unreported(self) -> list[AgentHit]:
        return [hit for hit in self._hits if _key(hit) not in self._reported]

    def _position(self, slot_id: int) -> int:
        """Return the position of the operator at which a slot got its value of this step."""
        tensor_slot = self._slot_table[slot_id]
        if tensor_slot.io == "input" and tensor_slot.node.role != "operator":
            # The value that the step read, not the one that it left.
            return _BEFORE_ALL
        return self._positions.get(tensor_slot.node.name, len(self._nodes))


def _key(hit: AgentHit) -> tuple[int, int]:
    return hit.watchpoint, hit.tensor_slot.slot_id


class _Writers(NamedTuple):
    """Full names of the operators that write to persistent tensors, by the names of these.

    Attributes
    ----------
    trained : dict of str to str
        The last operator of an optimizer, or assignment, that takes the tensor.
    others : dict of str to str
        The last operator of any kind that takes it: a normalization writes its running means.
    """

    trained: dict[str, str]
    others: dict[str, str]


def _has_results(node: TracedNode) -> bool:
    return bool(node.outputs) and node.type not in WITHOUT_RESULTS


def _written(operators: Sequence[TracedNode], seen: Container[str]) -> _Writers:
    """Return the operators that may have written to weights, states and buffers.

    An operator that was not observed may only pass on its inputs; then operators that take its result take these, too.
    """
    operator_names = {node.name for node in operators}
    propagated: dict[str, set[str]] = {}
    writers = _Writers({}, {})
    for node in operators:
        taken: set[str] = set()
        for source in node.inputs:
            if source is not None:
                name = source[0]
                taken |= propagated.get(name, set()) if name in operator_names else {name}
        writers.others.update(dict.fromkeys(taken, node.name))
        if is_of_optimizer(node.type, node.scope) or node.type.startswith("Assign"):
            writers.trained.update(dict.fromkeys(taken, node.name))
        if node.name not in seen and taken:
            propagated[node.name] = taken
    return writers
