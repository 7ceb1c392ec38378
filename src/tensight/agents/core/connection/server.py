"""The debug server as a training sees it: how it is attached to, what it is sent, and the commands that it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.agents.core.connection.attachment import Attachment, StopState
from tensight.agents.core.connection.commands import CommandLoop
from tensight.agents.core.connection.introduction import Introduction
from tensight.agents.core.connection.known_programs import KnownPrograms
from tensight.agents.core.connection.responses import TensorResponses
from tensight.agents.core.connection.row_sending import RowSender
from tensight.agents.core.connection.telemetry import Telemetry
from tensight.graph.steps import step_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensight.agents.core.node_cursor import NodeCursor
    from tensight.agents.core.observation import Observation
    from tensight.agents.core.reader import Framework
    from tensight.agents.core.recording.step_records import StepRecords
    from tensight.agents.core.settings import AgentSettings
    from tensight.agents.core.watching.rules import AgentHit
    from tensight.agents.core.watching.watches import Watches
    from tensight.wire.debugger_pb2 import WatchpointHit


class Server:
    """The debug server.

    Parameters
    ----------
    settings : AgentSettings
    framework : Framework
    observed : Observation
    watches : Watches
    records : StepRecords
    script : str
        Command line of the training, as shown to users.
    stops_at_nodes : bool
        Whether the training can stop at operators.
    cursor : NodeCursor or None
        Moves through the operators of a step, if the adapter shows it only when it is done.
    as_left, check_again, capture_operators : callable
        See `TensorResponses` and `CommandLoop`.

    Attributes
    ----------
    observed : Observation
    watches : Watches
    is_single : bool
        Whether the training has no other ranks.
    attachment : Attachment
    background : Background
    introduction : Introduction
    telemetry : Telemetry
    programs : KnownPrograms
    rows : RowSender
    loop : CommandLoop
    """

    def __init__(
        self,
        settings: AgentSettings,
        framework: Framework,
        observed: Observation,
        watches: Watches,
        records: StepRecords,
        *,
        script: str,
        stops_at_nodes: bool,
        cursor: NodeCursor | None,
        as_left: Callable[[int], Any | None],
        check_again: Callable[[], list[AgentHit]],
        capture_operators: Callable[[], None],
    ) -> None:
        self.is_single = framework.world_size == 1
        self.observed = observed
        self.watches = watches
        self._records = records
        self.telemetry = Telemetry(observed.slot_table)
        self.introduction = Introduction(
            settings, framework, script, stops_at_nodes=stops_at_nodes, goes_back=cursor is not None
        )
        self.attachment = Attachment(settings, self.introduction, self.telemetry)
        self.background = self.attachment.background
        self.programs = KnownPrograms(self.attachment, self.introduction, watches, records)
        # An adapter without a cursor observes steps while they run.
        has_run = (lambda _: True) if cursor is None else cursor.has_run
        self.rows = RowSender(
            *(self.attachment, self.introduction, self.telemetry, observed, self.programs), has_run=has_run
        )
        responses = TensorResponses(
            observed, records.recorder, has_run=has_run, as_left=as_left, program=lambda: self.programs.latest
        )
        self.loop = CommandLoop(
            *(self.attachment.connection, watches, responses),
            check_again=check_again,
            capture_operators=capture_operators,
            announce=self.attachment.introduce_again,
            hit_messages=self._hit_messages,
        )
        self.attachment.obey(self.loop)

    @property
    def is_attached(self) -> bool:
        """Whether a server knows the process, as far as the training has noticed."""
        return self.attachment.is_attached

    @property
    def is_ours(self) -> bool:
        """Whether one is attached that understands Tensight's additions to the protocol."""
        return self.attachment.is_attached and self.introduction.is_ours

    def stop_state(self, node: str = "") -> StopState:
        """Return where the training is stopped, from the full name of the operator; empty at the end of a step."""
        hashes = () if self.is_single or node else self.watches.hashes(self.observed.columns)
        step = step_of(self.observed.columns.current_iteration)
        return StopState(step, self.programs.latest, node, hashes, self._records.recorder.oldest_iteration)

    def offer_hits(self, hits: list[AgentHit]) -> None:
        """Send hits of a step without a stop soon."""
        if hits and self.loop.is_ours:
            self.background.offer_hits(self._hit_messages(hits))

    def _hit_messages(self, hits: Iterable[AgentHit]) -> list[WatchpointHit]:
        graph_of, iteration = self.programs.graph_of, self.observed.columns.current_iteration
        if not self.loop.is_ours:
            return [hit.message() for hit in hits]
        return [hit.message(graph_of(hit.tensor_slot.node.name), None if hit.is_new else iteration) for hit in hits]
