"""The programs that a training has run so far, and the graphs of them that the debug server receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.agents.core.notices import log_once

if TYPE_CHECKING:
    from tensight.agents.core.connection.attachment import Attachment
    from tensight.agents.core.connection.introduction import Introduction
    from tensight.agents.core.program import Program
    from tensight.agents.core.recording.step_records import StepRecords
    from tensight.agents.core.watching.watches import Watches

MOST_PROGRAMS = 256
"""A training that computes something else in every step would send graphs for ever."""


_PREVIEW = 0
"""Number of the program that is known before anything has run; the first that runs replaces it, usually."""


class KnownPrograms:
    """Reports each new program to the server, the watchpoints and the writers of steps.

    Parameters
    ----------
    attachment : Attachment
    introduction : Introduction
    watches : Watches
    records : StepRecords

    Attributes
    ----------
    latest : Program or None
        What ran in the latest step, or runs in this one as far as it has been requested.
    """

    def __init__(
        self,
        attachment: Attachment,
        introduction: Introduction,
        watches: Watches,
        records: StepRecords,
    ) -> None:
        self._attachment = attachment
        self._introduction = introduction
        self._watches = watches
        self._records = records
        self._programs: dict[int, Program] = {}
        self._graph_of: dict[str, str] = {}
        self._nodes_of: dict[int, frozenset[str]] = {}
        self.latest: Program | None = None

    def is_in_latest(self, node: str) -> bool:
        """Whether what ran last has a node of this name."""
        return self.latest is not None and node in self._nodes_of.get(self.latest.number, ())

    def graph_of(self, node: str) -> str:
        """Return the name of the graph that contains a node: the latest of several, empty if there is none."""
        if self.latest is not None and self.is_in_latest(node):
            return self.latest.name
        return self._graph_of.get(node, "")

    def learn(self, program: Program) -> bool:
        """Note what ran; return whether something new was reported to the server."""
        self.latest = self._watches.network.program = program
        previous = self._programs.get(program.number)
        if previous is program or (previous is not None and _has_same_nodes(previous, program)):
            return False
        if previous is None and len(self._programs) >= MOST_PROGRAMS:
            log_once(f"the steps run more than {MOST_PROGRAMS} different programs; no more graphs are shown")
            return False
        preview = self._programs.get(_PREVIEW)
        if preview is not None and program.number != _PREVIEW and preview.name == program.name:
            del self._programs[_PREVIEW], self._nodes_of[_PREVIEW]
        self._programs[program.number] = program
        # A program replaces an earlier one with the same name.
        self._introduction.programs[:] = {reported.name: reported for reported in self._programs.values()}.values()
        self._nodes_of[program.number] = frozenset(node.name for node in program.nodes)
        self._graph_of.update(dict.fromkeys(self._nodes_of[program.number], program.name))
        self._watches.learn(program)
        if previous is not None:
            self._records.learn(program)
        if not self._attachment.is_attached:
            return False
        problem = self._introduction.send_graphs(self._attachment.connection, [program])
        if problem:
            log_once(f"the debug server refuses the graph {program.name}: {problem}")
        return True


def _has_same_nodes(program: Program, other: Program) -> bool:
    """Whether two states of a program have the same nodes, with the same lines of code."""
    nodes, others = program.nodes, other.nodes
    return len(nodes) == len(others) and all(
        (node.name, node.role, node.inputs, node.stack)
        == (other_node.name, other_node.role, other_node.inputs, other_node.stack)
        for node, other_node in zip(nodes, others, strict=True)
    )
