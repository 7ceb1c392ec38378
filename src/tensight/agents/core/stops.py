"""Where a training stops, and how far the user lets it run from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.agents.core.connection.commands import ON, Order, Terminated

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.agents.core.connection.server import Server
    from tensight.agents.core.node_cursor import NodeCursor
    from tensight.agents.core.program import Program
    from tensight.agents.core.step_needs import StepNeeds
    from tensight.agents.core.watching.rules import AgentHit

_SHOWN_STEPS = 2
"""Number of steps before a stop that need everything: a step is shown beside the one before it."""


class Stops:
    """The stops of a training: at the end of steps, and at operators.

    Parameters
    ----------
    server : Server
    needs : StepNeeds
    cursor : NodeCursor or None
        Moves through the operators of a step, if the adapter shows it only when it is done.
    check_again : callable
        Checks all watchpoints again on the values of the step at which the training is stopped.
    terminated : callable
        Called when the user has ended the training.

    Attributes
    ----------
    cursor : NodeCursor or None
    order : Order
        How far the training is to run.
    left : int or None
        Number of steps left; None without end.
    """

    def __init__(
        self,
        server: Server,
        needs: StepNeeds,
        cursor: NodeCursor | None,
        *,
        check_again: Callable[[], list[AgentHit]],
        terminated: Callable[[], None],
    ) -> None:
        self._server = server
        self._needs = needs
        self.cursor = cursor
        self._check_again = check_again
        self._terminated = terminated
        self._asks = False
        self.order = ON
        self.left: int | None = None

    @property
    def is_near(self) -> bool:
        """Whether the training stops so soon that the next step will be inspected."""
        order = self.order
        return order.at_nodes or (self.left is not None and self.left <= _SHOWN_STEPS and not order.goes_on)

    @property
    def is_due(self) -> bool:
        """Whether the training stops at the end of the step that is done, or at its operators."""
        return self.left == 0 or self.order.at_nodes

    @property
    def _is_ordered(self) -> bool:
        """Whether a user has let the training run to where it is, and no further."""
        order = self.order
        return order.at_nodes or (self.left == 0 and not order.goes_on and not self._asks)

    def stops_at(self, node: str) -> bool:
        """Whether the training stops after an operator within a step."""
        return self.order.at_nodes and self.order.node in ("", node)

    def go_on(self) -> None:
        """Run without end."""
        self.order, self.left, self._asks = ON, None, False

    def ask_soon(self) -> None:
        """Request commands after the next step, from which everything will be available."""
        self.order, self.left, self._asks = Order(1), 1, True

    def follow_the_server(self, *, waits: bool) -> None:
        """Check whether the server was lost, or has come back, while the training ran.

        Parameters
        ----------
        waits : bool
            Whether the training waits for a server that was lost.
        """
        server, background, attachment = self._server, self._server.background, self._server.attachment
        if background.is_lost and attachment.is_attached:
            attachment.lose()
            self.go_on()
            if waits:
                attachment.wait(server.stop_state())
                self.ask_soon()
        elif background.is_back and not attachment.is_attached and attachment.come_back(server.stop_state()):
            self.ask_soon()

    def count_step(self) -> None:
        """Note that a step is done."""
        if self.left is not None:
            self.left -= 1

    def before_first_step(self, *, is_held: bool) -> None:
        """Stop before anything has run; there is nothing to go back to."""
        self._stop([], is_held=is_held)
        while self.order.back:
            self._stop([])

    def at_node(self, node: str, hits: list[AgentHit]) -> None:
        """Stop within a step, after an operator."""
        self._stop(hits, node)
        if self.left is not None and self.left > 0:
            # The current step is the first of them.
            self._needs.is_inspected = self.left <= _SHOWN_STEPS

    def at_end(self, program: Program, hits: list[AgentHit], *, is_held: bool) -> None:
        """Stop at the end of a step, or at its operators if the adapter shows it only now.

        Parameters
        ----------
        program : Program
        hits : list of AgentHit
        is_held : bool
            Whether the stop belongs to a user or a hit for another reason than these hits or the order.
        """
        cursor = self.cursor
        if cursor is None:
            self._stop(hits, is_held=is_held)
            return
        cursor.begin(program, self._server.observed.seen, hits)
        try:
            if self.order.at_nodes:
                cursor.rewind()
            else:
                self._stop(cursor.tell(), is_held=is_held)
            self._walk(cursor)
        finally:
            cursor.leave()

    def _walk(self, cursor: NodeCursor) -> None:
        """Stop at operators of the step that is done, until an order continues from its end."""
        while self._server.is_attached:
            is_within = cursor.is_within
            if not cursor.follow(self.order):
                self._server.loop.send_hits(cursor.tell())
                if is_within:
                    # The step whose operators are shown is the first of them.
                    self.count_step()
                return
            self._stop(cursor.tell(), cursor.node)
            if cursor.is_within and not self.order.back:
                # There may be other watchpoints now.
                cursor.replace_hits(self._check_again())

    def _stop(self, hits: list[AgentHit], node: str = "", *, is_held: bool = False) -> None:
        """Send everything about the step at which the training is stopped, and execute the server's commands."""
        server = self._server
        server.background.send_hits()
        server.loop.send_hits(hits)
        has_news = any(hit.is_new for hit in hits)
        if has_news or not self.order.goes_on:
            server.rows.complete()
            server.rows.send()
        else:
            server.rows.offer()
        try:
            # Within a step, only hits and orders of a user stop it.
            is_held = is_held or has_news or bool(node) or self._is_ordered
            self.order = server.attachment.stop(server.stop_state(node), is_held=is_held)
        except Terminated:
            self._terminated()
            raise
        self._asks = False
        # The server has sent all changes of watchpoints.
        server.watches.settle()
        self._needs.may_watch_anew = not self.order.goes_on
        self.left = self.order.steps
