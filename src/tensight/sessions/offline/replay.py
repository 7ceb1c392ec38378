"""Replay of the operators of a dumped step, in execution order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.errors import InputError
from tensight.graph.steps import step_of
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.graph_views import names_like

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.dumps import Dump
    from tensight.errors import TensightError
    from tensight.graph import Graph


@dataclass(frozen=True, slots=True)
class ReplayPosition:
    """Position of a replay.

    Attributes
    ----------
    rank : int
    graph, node : str
        The operator that has just run.
    index : int
        Its index among the operators that ran in the step.
    is_last : bool
        Whether it is the last operator of the step.
    """

    rank: int
    graph: str
    node: str
    index: int
    is_last: bool


class Replay:
    """Moves through the operators of an iteration of a rank.

    The replay only points at operators: all tensors that were dumped in the step can be inspected at any position.

    Parameters
    ----------
    dump : Dump
    """

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        self._order: tuple[tuple[int, int], tuple[tuple[str, str], ...]] | None = None

    def following(self, position: ReplayPosition | None, rank: int, iteration: int) -> ReplayPosition:
        """Return the operator after a position, the first one if there is no position.

        Raises
        ------
        StateError
            The position is the last operator of the step, or nothing ran in it.
        """
        order = self._executed(rank, iteration)
        index = 0 if position is None else position.index + 1
        if index >= len(order):
            raise StateError(
                f"{order[-1][1]} is the last operator of step {step_of(iteration)}; continue to the next step",
                code="end-reached",
            )
        return _position(rank, order, index)

    def preceding(self, position: ReplayPosition | None, rank: int, iteration: int) -> ReplayPosition:
        """Return the operator before a position, the last one if there is no position.

        Raises
        ------
        StateError
            The position is the first operator of the step, or nothing ran in it.
        """
        order = self._executed(rank, iteration)
        index = len(order) - 1 if position is None else position.index - 1
        if index < 0:
            raise StateError(
                f"{order[0][1]} is the first operator of step {step_of(iteration)}; go back a step", code="end-reached"
            )
        return _position(rank, order, index)

    def at(self, ranks: Sequence[int], iteration: int, graph: str, node: str) -> ReplayPosition:
        """Return the position of an operator.

        Parameters
        ----------
        ranks : sequence of int
            Ranks to search; at least one. The first that ran it is used.
        iteration : int
        graph, node : str
            An empty `graph` means any.

        Raises
        ------
        NotFoundError
            No graph has such a node.
        InputError
            The node is not an operator.
        StateError
            It did not run in this iteration; the message lists dumped steps in which it did.
        """
        for rank in ranks:
            order = self._executed(rank, iteration)
            for index, (owner, name) in enumerate(order):
                if name == node and graph in ("", owner):
                    return _position(rank, order, index)
        raise self._why_not(ranks, iteration, graph, node)

    def _why_not(self, ranks: Sequence[int], iteration: int, graph: str, node: str) -> TensightError:
        owners = [
            (rank, owner)
            for rank in ranks
            for owner in self._dump.graphs(rank)
            if node in owner and graph in ("", owner.name)
        ]
        if not owners:
            graphs = [owner for rank in ranks for owner in self._dump.graphs(rank) if graph in ("", owner.name)]
            where = f" in graph {graph[:200]!r}" if graph else ""
            return NotFoundError(
                f"there is no node {node[:200]!r}{where}{names_like(graphs, node)}", code="node-unknown"
            )
        if not any(owner.node(node).is_operator for _, owner in owners):
            return InputError(f"{node} is not an operator, so it does not run")
        ran = {turn for rank, owner in owners for turn in self._dump.iterations(rank, self._folder_of(rank, owner))}
        steps = ", ".join(str(step_of(turn)) for turn in sorted(ran)[:5]) + (", …" if len(ran) > 5 else "")
        when = f"its graph ran in step {steps}" if ran else "its graph was recorded in no step"
        return StateError(f"{node} did not run in step {step_of(iteration)}; {when}")

    def _executed(self, rank: int, iteration: int) -> tuple[tuple[str, str], ...]:
        """Return graph and name of the operators that ran in an iteration, in order; at least one."""
        if self._order is None or self._order[0] != (rank, iteration):
            self._order = ((rank, iteration), self._order_of(rank, iteration))
        if not self._order[1]:
            step = step_of(iteration)
            what = f"nothing was recorded of step {step}" if step else "nothing has run before step 1"
            raise StateError(f"{what} on rank {rank}; continue, or go to a step that has data")
        return self._order[1]

    def _order_of(self, rank: int, iteration: int) -> tuple[tuple[str, str], ...]:
        listed = len(self._dump.execution_order(rank))
        executed = []
        for graph in self._dump.graphs(rank):
            if iteration in self._dump.iterations(rank, self._folder_of(rank, graph)):
                numbered = ((self._dump.node_position(rank, node), node.name) for node in graph.operators)
                # Pass-through operators and parameters come after the listed operators; skip them.
                executed += [(number, graph.name, name) for number, name in numbered if number < listed]
        return tuple((graph, name) for _, graph, name in sorted(executed))

    def _folder_of(self, rank: int, graph: Graph) -> int:
        """Return the number of the folder with a graph's tensors: that of its root graph, if there is one."""
        folders = self._dump.graph_ids(rank)
        return graph.root_id if graph.root_id in folders else graph.graph_id


def _position(rank: int, order: Sequence[tuple[str, str]], index: int) -> ReplayPosition:
    """Return the position with an index among the operators of a step, given as (graph, name)."""
    return ReplayPosition(rank, *order[index], index, is_last=index == len(order) - 1)
