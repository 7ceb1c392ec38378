"""Walking through a step that is complete before anybody looks at it, operator by operator, forwards and backwards.

Some frameworks show a step only when it is done. What a person sees at an operator of it is what there was when that
one had run: what came later has its value of the step before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tensight.graph.operator_facts import WITHOUT_RESULTS
from tensight.graph.optimizers import is_of_optimizer

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from tensight.agents.commands import Order
    from tensight.agents.program import Program, TracedNode
    from tensight.agents.slots import SlotTable
    from tensight.agents.watching_rules import AgentHit

_BEFORE_ALL = -1


class NodeCursor:
    """The position of a person among the operators of a step.

    Parameters
    ----------
    slot_table : SlotTable
        Where tensors are seen.
    """

    def __init__(self, slot_table: SlotTable) -> None:
        self._slot_table = slot_table
        self._nodes: list[str] = []
        self._positions: dict[str, int] = {}
        self._at = 0
        self._hits: list[AgentHit] = []
        self._reported: set[tuple[int, int]] = set()

    def begin(self, program: Program, seen: Iterable[int], hits: Sequence[AgentHit]) -> None:
        """Stand at the end of a step.

        Parameters
        ----------
        program : Program
            What ran.
        seen : iterable of int
            Slots that were seen in it, in any order: frameworks run in parallel what does not depend on each other,
            and the program's order is the same in every step.
        hits : sequence of AgentHit
            All of the step.
        """
        names = {self._slot_table[number].node.name for number in seen}
        operators = [node for node in program.nodes if node.role == "operator"]
        # What has results, and none that was seen, is no computation, or belongs to a branch that was not taken.
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
        """Stand before the first operator."""
        self._at = _BEFORE_ALL

    def leave(self) -> None:
        """Stand at the end of the step: the training goes on."""
        self._at = len(self._nodes)

    @property
    def is_within(self) -> bool:
        """Whether operators of the step are still to come."""
        return self._at < len(self._nodes)

    @property
    def node(self) -> str:
        """Full name of the operator that has just run; empty at the end of the step."""
        return self._nodes[self._at] if 0 <= self._at < len(self._nodes) else ""

    def has_run(self, slot_id: int) -> bool:
        """Whether the value that a slot has in this step was there when the operator had run."""
        return not self.is_within or self._position(slot_id) <= self._at

    def follow(self, order: Order) -> bool:
        """Go where an order leads within the step; return whether the training is stopped there.

        If not, the order leads on from the end of the step.
        """
        end = len(self._nodes)
        if order.back:
            before = (one for one in range(self._at - 1, -1, -1) if order.node in ("", self._nodes[one]))
            self._at = next(before, self._at)
            return True
        if self._at == end:
            return False
        if order.at_nodes:
            stops = {self._position(hit.tensor_slot.slot_id) for hit in self._unreported if hit.is_new}
            following = range(self._at + 1, end)
            wanted = (one for one in following if order.node in ("", self._nodes[one]) or one in stops)
            self._at = next(wanted, end)
            return True
        self._at = end
        return order.steps == 1 or any(hit.is_new for hit in self._unreported)

    def replace_hits(self, hits: Sequence[AgentHit]) -> None:
        """Take the hits of a step that was checked once more; those that were reported are not reported again."""
        self._hits = list(hits)

    def tell(self) -> list[AgentHit]:
        """Return the hits to be reported here: those on the operator, and what follows from others on the way to it.

        At the end of the step all that are left are reported.
        """
        hits = [hit for hit in self._unreported if not self.is_within or self._is_reported_here(hit)]
        self._reported.update(map(_key, hits))
        return hits

    def tell_again(self, hits: Sequence[AgentHit]) -> list[AgentHit]:
        """Return which hits of a step that was checked once more are on what has run; the others are reported later."""
        self._hits = list(hits)
        found = [hit for hit in hits if self.has_run(hit.tensor_slot.slot_id)]
        self._reported = set(map(_key, found))
        return found

    def _is_reported_here(self, hit: AgentHit) -> bool:
        position = self._position(hit.tensor_slot.slot_id)
        return position == self._at or (position < self._at and not hit.is_new)

    @property
    def _unreported(self) -> list[AgentHit]:
        return [hit for hit in self._hits if _key(hit) not in self._reported]

    def _position(self, slot_id: int) -> int:
        """Return at which operator a slot got the value that it has in this step."""
        tensor_slot = self._slot_table[slot_id]
        if tensor_slot.io == "input" and tensor_slot.node.role != "operator":
            # What the step read, and not what it left.
            return _BEFORE_ALL
        return self._positions.get(tensor_slot.node.name, len(self._nodes))


def _key(hit: AgentHit) -> tuple[int, int]:
    return hit.watchpoint, hit.tensor_slot.slot_id


class _Writers(NamedTuple):
    """Full names of the operators that write to what lasts, by its name.

    Attributes
    ----------
    trained : dict of str to str
        The last operator of an optimizer, or assignment, that takes it.
    others : dict of str to str
        The last operator of any kind that takes it: a normalization writes its running means.
    """

    trained: dict[str, str]
    others: dict[str, str]


def _has_results(node: TracedNode) -> bool:
    return bool(node.outputs) and node.type not in WITHOUT_RESULTS


def _written(operators: Sequence[TracedNode], seen: Container[str]) -> _Writers:
    """Return which operators may have written to weights, states and buffers.

    An operator that nobody saw may only hand on what went in; then whoever takes its result takes that, too.
    """
    known = {node.name for node in operators}
    propagated: dict[str, set[str]] = {}
    writers = _Writers({}, {})
    for node in operators:
        taken: set[str] = set()
        for source in node.inputs:
            if source is not None:
                name = source[0]
                taken |= propagated.get(name, set()) if name in known else {name}
        writers.others.update(dict.fromkeys(taken, node.name))
        if is_of_optimizer(node.type, node.scope) or node.type.startswith("Assign"):
            writers.trained.update(dict.fromkeys(taken, node.name))
        if node.name not in seen and taken:
            propagated[node.name] = taken
    return writers
