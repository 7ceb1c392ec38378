"""The step that runs: what is known of its program so far, and the hits on the nodes that have run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.agents.core.connection.known_programs import KnownPrograms
    from tensight.agents.core.program import Program
    from tensight.agents.core.slots import DeclaredNode
    from tensight.agents.core.watching.checks import StepChecks
    from tensight.agents.core.watching.rules import AgentHit

_GROWTH = 1.25
"""Factor by which a step grows until what it has run is learned again."""


class RunningStep:
    """The nodes of a step as they run.

    Parameters
    ----------
    checks : StepChecks
    programs : KnownPrograms

    Attributes
    ----------
    program : callable or None
        Set by an adapter that stops at nodes: returns what has run so far in a step.
    hits : list of AgentHit
        The hits on its nodes at which the training did not stop.
    """

    def __init__(self, checks: StepChecks, programs: KnownPrograms) -> None:
        self.program: Callable[[], Program] | None = None
        self.hits: list[AgentHit] = []
        self._checks = checks
        self._programs = programs
        self._put_off: list[AgentHit] = []
        self._nodes_done = 0
        self._nodes_learned: int | None = None

    def begin(self) -> None:
        """Begin the next step."""
        self.hits = []
        self._put_off = []
        self._nodes_done = 0
        self._nodes_learned = None
        self._checks.runs_anew = False

    def check(self, node: DeclaredNode, *, is_urgent: bool) -> list[AgentHit]:
        """Return the hits to report when a node has run, each marked as a reason to stop or not.

        After a NaN every operator of the step hits. To learn at each of them what has run would take the square of
        their number, so that after the first time the step must have grown; hits are put off until then.

        Parameters
        ----------
        node : DeclaredNode
        is_urgent : bool
            Whether the training stops here in any case.
        """
        self._nodes_done += 1
        hits = self._checks.check_node(node)
        if not hits:
            return hits
        has_grown = self._nodes_learned is None or self._nodes_done >= _GROWTH * self._nodes_learned
        is_known = self._programs.is_in_latest(node.name) and not self._put_off
        if not (has_grown or is_urgent or is_known):
            self._put_off += hits
            return []
        self.learn(node.name)
        return self._marked([*self._put_off, *hits])

    def end(self) -> None:
        """Add the hits that were put off."""
        if self._put_off:
            self.hits += self._marked(self._put_off)

    def diverges(self, *, is_known: bool) -> None:
        """Note that the step goes on as an earlier one, or as none."""
        self._checks.runs_anew = not is_known
        self._nodes_learned = None
        if is_known:
            self.learn()

    def learn(self, node: str = "") -> None:
        """Learn what has run so far, unless what was learned in this step already contains the node."""
        if self.program is None or (self._nodes_learned is not None and self._programs.is_in_latest(node)):
            return
        self._nodes_learned = self._nodes_done
        self._programs.learn(self.program())

    def _marked(self, hits: list[AgentHit]) -> list[AgentHit]:
        """Return hits with those in which they originate, each marked as a reason to stop or not."""
        self._put_off = []
        return self._checks.marked(self._checks.with_held_back(hits), self.program)
