"""Decides which hits a training stops for, from what an agent knows of the current step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tensight.graph.operator_facts import SAME_VALUES, plain_type
from tensight.watchpoints.causes import Causes, HitFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set

    from tensight.agents.core.columns import StatisticsColumns
    from tensight.agents.core.program import Program
    from tensight.agents.core.slots import SlotTable
    from tensight.agents.core.watching.rules import AgentHit

_PERSISTENT = ("weight", "frozen_weight", "state", "buffer")
_INPUT = ("input", "constant")


class AgentCauses:
    """Distinguishes new hits of a training from those that continue and those that result from others.

    Parameters
    ----------
    slot_table : SlotTable
    finds_non_finite : callable
        Returns whether a watchpoint, given by its number, hits only on NaN and Inf.
    checked : callable
        Returns the names of the nodes that such watchpoints check.
    """

    def __init__(
        self, slot_table: SlotTable, finds_non_finite: Callable[[int], bool], checked: Callable[[], Set[str]]
    ) -> None:
        self._slot_table = slot_table
        self._finds_non_finite = finds_non_finite
        self._causes = Causes(self._is_persistent, checked, self._passes_on)
        self._columns: StatisticsColumns | None = None
        self._program: Program | None = None
        self._inputs_of: dict[int, tuple[Program, dict[str, tuple[str, ...]]]] = {}

    def runs(self, program: Program) -> None:
        """Note what the step computes."""
        self._program = program

    def forget(self, watchpoint: int | None = None) -> None:
        """Forget the hits of a watchpoint whose check has changed, or all of them."""
        self._causes.forget(watchpoint)

    def judge(
        self, hits: list[AgentHit], columns: StatisticsColumns, running: Callable[[], Program] | None = None
    ) -> list[AgentHit]:
        """Return the hits of a step, or of a node of it, each marked as a reason to stop or not.

        Parameters
        ----------
        hits : list of AgentHit
        columns : StatisticsColumns
        running : callable, optional
            Returns what has run so far in a step that is not over, and may differ from earlier ones.
        """
        if not hits:
            return hits
        self._columns = columns
        inputs = {} if self._program is None else self._inputs(self._program)
        so_far = None if running is None else partial(self._inputs_so_far, running)
        return _marked(hits, self._causes.judge(self._facts(hits), inputs, so_far))

    def judge_again(self, hits: list[AgentHit]) -> list[AgentHit]:
        """Return the hits of a step that has ended and was checked again, perhaps for other watchpoints."""
        return _marked(hits, self._causes.judge_again(self._facts(hits)))

    def end_step(self, seen: Sequence[int], *, was_checked: bool) -> None:
        """Note that a step has ended, the slots that were observed in it, and whether they were checked."""
        self._causes.end_step(lambda: set(seen) if was_checked else ())

    def _facts(self, hits: list[AgentHit]) -> list[HitFacts]:
        return [
            HitFacts(
                hit.watchpoint,
                hit.tensor_slot.slot_id,
                hit.tensor_slot.node.name,
                hit.tensor_slot.node.role in _PERSISTENT,
                self._finds_non_finite(hit.watchpoint),
                hit.tensor_slot.node.role in _INPUT,
            )
            for hit in hits
        ]

    def _inputs(self, program: Program) -> dict[str, tuple[str, ...]]:
        """Return the inputs of each operator of a program."""
        entry = self._inputs_of.get(program.number)
        if entry is None or entry[0] is not program:
            inputs = {
                node.name: tuple(source[0] for source in node.inputs if source is not None)
                for node in program.nodes
                if node.role == "operator"
            }
            entry = self._inputs_of[program.number] = program, inputs
        return entry[1]

    def _inputs_so_far(self, running: Callable[[], Program]) -> Mapping[str, Sequence[str]]:
        return self._inputs(running())

    def _is_persistent(self, name: str) -> bool:
        node = self._slot_table.find_node(name)
        return node is not None and node.role in _PERSISTENT

    def _passes_on(self, name: str) -> bool:
        """Whether an operator passes on its inputs, or has returned NaN or Inf without a hit."""
        node, columns = self._slot_table.find_node(name), self._columns
        if node is not None and plain_type(node.type) in SAME_VALUES:
            return True
        return columns is not None and any(map(columns.is_non_finite, self._slot_table.outputs(name)))


def _marked(hits: list[AgentHit], marks: list[bool]) -> list[AgentHit]:
    return [hit if is_new else replace(hit, is_new=False) for hit, is_new in zip(hits, marks, strict=True)]
