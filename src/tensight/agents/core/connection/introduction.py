"""Introduces a training process to a debug server, with Tensight's messages or as a MindSpore client."""

from __future__ import annotations

import os
import socket
import uuid
from typing import TYPE_CHECKING

from tensight.agents.core.connection.run_names import run_name
from tensight.agents.core.graph_messages import SourceTexts, execution_order, graph_chunks, graph_message, graph_number
from tensight.agents.core.notices import log
from tensight.agents.core.settings import DEFAULT_PORT
from tensight.garbage_collection import without_garbage_collection
from tensight.version import __version__
from tensight.wire import PROTOCOL, encoded, text
from tensight.wire.debugger_pb2 import Abilities, ContentHash, EventReply, Metadata, Process
from tensight.wire.telemetry_pb2 import PollRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tensight.agents.core.connection.connection import Connection, Outcome
    from tensight.agents.core.program import Program
    from tensight.agents.core.reader import Framework
    from tensight.agents.core.settings import AgentSettings
    from tensight.wire.debugger_pb2 import Chunk

ANSWER_WITHIN_S = 10.0
"""For calls that only report something; a server that takes longer counts as lost."""

GRAPHS_WITHIN_S = 120.0

_VERSIONS = ("2.99.0", *(f"1.{minor}.0" for minor in range(9, 0, -1)))
"""Versions of MindSpore, tried in turn: the original server accepts its own, or since 2.0 a newer one."""


class Introduction:
    """The identity of the process, and its programs.

    Parameters
    ----------
    settings : AgentSettings
    framework : Framework
    script : str
        Command line, as shown to users.
    stops_at_nodes : bool
        Whether it can stop at every operator.
    goes_back : bool
        Whether it can also go back to the operator before.

    Attributes
    ----------
    key : str
        Unique for the life of the process.
    is_ours : bool
        Whether the server is Tensight's; the original's understands less.
    is_refused : bool
        Whether the last server that was found requires an access token that the process does not have.
    programs : list of Program
        Those that were reported to the server, or will be.
    can_capture_operators : bool
        Whether it captures calls of modules, and can capture every operator from a step on.
    """

    def __init__(
        self,
        settings: AgentSettings,
        framework: Framework,
        script: str,
        *,
        stops_at_nodes: bool,
        goes_back: bool = False,
    ) -> None:
        self.key = uuid.uuid4().hex
        self.is_ours = True
        self.is_refused = False
        self.programs: list[Program] = []
        self.can_capture_operators = False
        self._settings = settings
        self._framework = framework
        self._script = script
        self._stops_at_nodes = stops_at_nodes
        self._goes_back = goes_back
        self._sources = SourceTexts()
        self._version = _VERSIONS[0]

    def captures_operators(self) -> None:
        """Note that the process captures every operator from now on, and can stop at each."""
        self.can_capture_operators, self._stops_at_nodes = False, True

    def find_out(self, connection: Connection, *, timeout_s: float, wait_for_ready: bool = False) -> str:
        """Find out which server there is; return why none replies, empty if one does."""
        outcome = connection.call("Poll", PollRequest(), timeout_s=timeout_s, wait_for_ready=wait_for_ready)
        self.is_refused = outcome.is_refused
        if outcome.is_refused:
            return self._refusal
        if outcome.reply is None and not outcome.is_unknown_call:
            return outcome.problem
        self.is_ours = outcome.reply is not None
        return ""

    def absence(self, connection: Connection, why: str) -> str:
        """Return a message that no server replies, or that the server refuses the process."""
        if self.is_refused:
            return f"the debug server at {connection.address} {why}"
        hint = ""
        if "TENSIGHT_PORT" in os.environ and self._settings.port == DEFAULT_PORT:
            hint = "; TENSIGHT_PORT is the port of the page, and TENSIGHT_DEBUGGER_PORT that for trainings"
        return f"no debug server at {connection.address} ({why}){hint}"

    @property
    def _refusal(self) -> str:
        """What is wrong with the access token, and where to find the right one."""
        where = "in the file that the server named when it was started"
        if self._settings.token:
            return f"refuses the access token of this training (TENSIGHT_TOKEN, or token=…); the right one is {where}"
        return f"needs an access token, and this training has none: set TENSIGHT_TOKEN to the one {where}"

    def announce(self, connection: Connection, step: int, *, run_at_start: bool) -> str:
        """Introduce the process, and send all graphs; return why that was refused, empty if it was not."""
        for version in _VERSIONS:
            message = self.metadata(step, self.programs[-1] if self.programs else None)
            message.ms_version = encoded(version)
            message.graph_num = len(self.programs)
            if self.is_ours:
                message.process.CopyFrom(self._process(run_at_start=run_at_start))
            outcome = connection.call("SendMetadata", message, timeout_s=ANSWER_WITHIN_S)
            reply = outcome.reply
            if reply is None or reply.status != EventReply.OK:
                return _words(outcome)
            if reply.WhichOneof("cmd") != "version_matched":
                return "the server is too old: it does not compare versions"
            if reply.version_matched:
                if reply.message:
                    log(f"the debug server says: {text(reply.message)}")
                self._sources.forget()
                return self.send_graphs(connection, self.programs)
            if self.is_ours:
                break
        return text(reply.message) or "the server understands no version of the protocol that this agent speaks"

    def send_graphs(self, connection: Connection, programs: Sequence[Program]) -> str:
        """Send graphs; return why they were refused, empty if they were not."""
        if not programs:
            return ""
        # The original takes the graphs that it receives for all graphs of the process.
        sent = programs if self.is_ours else self.programs
        call = "SendGraph" if len(sent) == 1 else "SendMultiGraphs"
        # Created before the call, because gRPC swallows errors in the middle of a stream.
        with without_garbage_collection():
            messages = list(self._chunks(sent))
        outcome = connection.stream(call, messages, timeout_s=GRAPHS_WITHIN_S)
        reply = outcome.reply
        return "" if reply is not None and reply.status == EventReply.OK else _words(outcome)

    def _chunks(self, programs: Sequence[Program]) -> Iterator[Chunk]:
        sources = self._sources.of(programs) if self.is_ours else {}
        for program in programs:
            order = execution_order(program) if self.is_ours else ()
            yield from graph_chunks(graph_message(program), order, sources)
            sources = {}

    def metadata(
        self,
        step: int,
        program: Program | None,
        node: str = "",
        *,
        hashes: Iterable[ContentHash] = (),
        oldest_iteration: int | None = None,
        done: bool = False,
    ) -> Metadata:
        """Return the position of the process.

        Parameters
        ----------
        step : int
            Steps done, including the current one.
        program : Program or None
            What runs.
        node : str
            Full name of the operator at which it is stopped within a step.
        hashes : iterable of ContentHash
            Of the tensors that are compared between ranks.
        oldest_iteration : int, optional
            The first iteration that can still be shown.
        done : bool
            Whether the training has ended.
        """
        message = Metadata(
            device_name=f"{self._framework.device}:{graph_number(program) if program else 0}".encode(),
            cur_step=step,
            # For the original, only this kind of process stops at operators.
            backend=encoded(self._framework.backend) if self.is_ours else b"GPU",
            cur_node=encoded(node),
            training_done=done,
        )
        if self.is_ours:
            message.hashes.extend(hashes)
            if oldest_iteration is not None:
                message.oldest_iteration = oldest_iteration
        return message

    def _process(self, *, run_at_start: bool) -> Process:
        framework, settings = self._framework, self._settings
        return Process(
            key=self.key.encode(),
            job=encoded(" ".join(settings.job.split("\n")) or f"{run_name()}\n{settings.run or self.key}"),
            rank=framework.rank,
            world_size=framework.world_size,
            framework=encoded(framework.name),
            framework_version=encoded(framework.version),
            agent_version=__version__.encode(),
            process_id=os.getpid(),
            host=encoded(socket.gethostname()),
            protocol=PROTOCOL,
            abilities=Abilities(
                views=True,
                nodes=self._stops_at_nodes,
                run_to_node=self._stops_at_nodes,
                pause=True,
                steps=True,
                previous=not settings.partial_memory,
                history=bool(settings.record),
                conditions=True,
                back=self._goes_back,
                closer=self.can_capture_operators,
            ),
            script=encoded(self._script),
            run_at_start=run_at_start,
            recommended=settings.recommended,
            findings=encoded(settings.findings_wanted),
        )


def _words(outcome: Outcome) -> str:
    """Return why a call did not succeed."""
    if outcome.reply is None:
        return outcome.problem
    return text(outcome.reply.message) or "the server refused without a reason"
