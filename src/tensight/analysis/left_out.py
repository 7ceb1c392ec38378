"""Nodes that are not finite but have no effect, because all operators that read them leave out NaN and Inf."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tensight.analysis.statistics_table import KNOWN, RECORDED
from tensight.graph.layers import nodes_of
from tensight.graph.operator_facts import PARTS, VIEWS, plain_type
from tensight.graph.spreading import NonFinite, Spreading
from tensight.tensors.schema import NON_FINITE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from tensight.analysis.observations import Observations
    from tensight.graph import Graph

_EITHER = NonFinite.NAN | NonFinite.INF


def _is_read_in_parts(spreading: Spreading, name: str) -> bool:
    """Whether all operators that read a node take parts of it, directly or from views of all of it."""
    kinds = {consumer.name: plain_type(consumer.type) for consumer in spreading.consumers(name)}
    return bool(kinds) and all(
        kind in PARTS or (kind in VIEWS and _is_read_in_parts(spreading, consumer)) for consumer, kind in kinds.items()
    )


def _spreading(graph: Graph) -> Spreading:
    return Spreading(nodes_of(graph), with_backward=True)


class LeftOut:
    """Follows NaN and Inf through the operators of observed steps.

    Parameters
    ----------
    observed : Observations
    """

    def __init__(self, observed: Observations) -> None:
        self._observed = observed

    def nodes(
        self,
        graph: Graph,
        rows: Mapping[str, Collection[int]],
        before: Mapping[str, int],
        passed_on: Collection[str] = (),
    ) -> frozenset[str]:
        """Return the nodes of the forward pass whose NaN and Inf do not spread in the step.

        An unobserved operator (not recorded, or not yet executed) is assumed to spread them, unless one of the next
        operators may leave them out.

        Parameters
        ----------
        graph : Graph
        rows : mapping of str to collection of int
            Rows of the outputs of each node in this step.
        before : mapping of str to int
            The last row of each parameter before the step.
        passed_on : collection of str
            Nodes whose values other graphs of the step may receive.
        """
        certain = {name: kind for name, node_rows in rows.items() if (kind := self._certain(node_rows))}
        spreading = graph.once(_spreading)
        names = {name for name in certain if spreading.is_passing(name)}
        if not names:
            return frozenset()
        unknown = {
            node.name for node in graph.operators if not self._is_known(rows.get(node.name, ())) and node.outputs
        }
        going_on = {name for name in certain if not spreading.may_be_left_out(name)}
        going_on = {
            name
            for name in going_on
            if any(consumer.name in unknown and not consumer.is_integer for consumer in spreading.consumers(name))
            # A step reads only its batch of data that are in memory as a whole.
            and (graph.node(name).is_operator or not _is_read_in_parts(spreading, name))
        }
        going_on.update(name for name in passed_on if name in certain)
        kinds = dict.fromkeys(unknown, _EITHER) | certain
        spreads = spreading.spreading(names, kinds, going_on=going_on, unknown=unknown)
        return frozenset(
            name for name in names - spreads if self._is_first_value(graph, name, rows[name], before, spreading)
        )

    def _is_first_value(
        self, graph: Graph, name: str, rows: Collection[int], before: Mapping[str, int], spreading: Spreading
    ) -> bool:
        """Whether a buffer is not finite because it still has its initial value; True for nodes other than buffers."""
        node = graph.node(name)
        if node.is_operator or "." not in node.name:
            return True
        if all(self._is_infinite(row) for row in rows):
            return True
        earlier = before.get(name)
        return spreading.is_read(name) if earlier is None else bool(self._certain([earlier]))

    def _certain(self, rows: Collection[int]) -> NonFinite:
        """Return the kinds of non-finite elements that some rows certainly contain."""
        kind = NonFinite.NOTHING
        for row in rows:
            kind |= NonFinite(int(self._kinds[0][row]))
        return kind

    def _is_known(self, rows: Collection[int]) -> bool:
        """Whether the kinds of non-finite elements of all rows are known exactly."""
        return bool(rows) and all(self._kinds[0][row] == self._kinds[1][row] for row in rows)

    def _is_infinite(self, row: int) -> bool:
        counts = self._observed.rows[row]
        return not counts["nan_count"] and bool(counts["count"] == counts["neg_inf_count"] + counts["pos_inf_count"])

    @cached_property
    def _kinds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The kinds of non-finite elements that each row certainly has, and those that it may have."""
        state = self._observed.rows["state"]
        is_seen = (state == KNOWN) | (state == RECORDED)
        nan, *infinite = (self._observed.bounds(name) for name in NON_FINITE)
        certain, possible = (
            np.where(nan[side] > 0, int(NonFinite.NAN), 0)
            | np.where((infinite[0][side] > 0) | (infinite[1][side] > 0), int(NonFinite.INF), 0)
            for side in (0, 1)
        )
        return np.where(is_seen, certain, 0), np.where(is_seen, possible, int(_EITHER))
