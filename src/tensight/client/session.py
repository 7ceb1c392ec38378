"""A session of the server, for scripts and notebooks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tensight.client.comparison import begin_comparison
from tensight.client.connection import part
from tensight.client.events import Events
from tensight.client.formatting import FINDINGS, ORIGINS, STATISTICS, TENSORS, session_html
from tensight.client.graph_reading import GraphReading, address_of
from tensight.client.rows import Rows
from tensight.client.running import Running
from tensight.client.tensor import Tensor
from tensight.client.watching import Watching
from tensight.errors import InputError, TensightError
from tensight.graph.addresses import TensorAddress
from tensight.graph.steps import iteration_of
from tensight.sessions.records import (
    Curves,
    DiagnosisRecord,
    FactsRecord,
    FindingRecord,
    Io,
    OriginRecord,
    SessionRecord,
    State,
    StatisticsPage,
    StatisticsRow,
    TensorRecord,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from tensight.client.comparison import Comparison
    from tensight.sessions.records import DumpRecord

_ADDRESS = re.compile(r"[0-9]{1,9}/[^/]*/.+:(input\.)?[0-9]{1,9}(?P<step>@[0-9]{1,18})?", re.DOTALL)


class Session(Running, Watching, GraphReading):
    """A run being debugged: a training that is attached to the server, or a dump.

    Obtain it from `Server.session`, `Server.open` or `Server.wait_for_session`. Its methods return the records of
    `tensight.sessions.records`; lists are `Rows`, which a notebook shows as tables.

    Parameters
    ----------
    connection : Connection
        Connection to the server.
    record : SessionRecord
        The session, as last read.

    Examples
    --------
    >>> session
    <session ... (sick-2.10.0)>
    """

    @property
    def state(self) -> State:
        """The current state of the session.

        Examples
        --------
        >>> session.state is State.PAUSED
        True
        """
        return self.summary.state

    def tensor(
        self,
        which: object,
        slot: int = 0,
        *,
        rank: int = 0,
        graph: str = "",
        step: int | None = None,
        io: Io = "output",
    ) -> Tensor:
        """Return a handle on a tensor, by its address or by its node.

        The handle refers to the tensor at one step, by default the current one; it stays at that step when the session
        continues.

        Parameters
        ----------
        which : str, or a record with an address
            An address, ``rank/graph/node:slot@step`` (the last part may be omitted), without further arguments;
            or the name of a node, or the end of one, such as ``conv1.weight``: a weight takes precedence over its
            optimizer states.
        slot : int
            Index of the output, or input, of the node.
        rank : int
            Rank of the process, from 0.
        graph : str
            By default the one that ran at the step if that has the node, else the newest that has it.
        step : int, optional
            From 1; 0 for the state before the first step.
        io : {"output", "input"}
            Whether `slot` counts outputs or inputs.

        Raises
        ------
        NotFoundError
            There is no such node, or several; the message names them, or similar ones. Whether the tensor exists is
            checked when its values are requested.

        Examples
        --------
        >>> session.tensor("network.fc2.weight", step=3)
        <tensor 0/kernel_graph0/network.fc2.weight:0@3>
        >>> session.tensor("0/kernel_graph0/network.fc2.weight:0@3").statistics().shape
        (3, 10)
        """
        text = address_of(which)
        if match := _ADDRESS.fullmatch(text):
            text += "" if match["step"] else f"@{self._shown(step)}"
            return Tensor(self._connection, self._path(), TensorAddress.parse(text), "current")
        if slot < 0 or rank < 0:
            raise InputError(f"slot {slot} of rank {rank} does not exist; both count from 0")
        graph, name = self._node_meant(text, rank, graph, step)
        where = TensorAddress(rank, graph, name, slot, iteration_of(self._shown(step)), io)
        return Tensor(self._connection, self._path(), where, "current")

    def tensors(self, node: str, *, rank: int = 0, graph: str = "", step: int | None = None) -> Rows[TensorRecord]:
        """Return the inputs and outputs of a node, with statistics and hits.

        Parameters
        ----------
        node : str
            Its name, or the end of it.
        rank : int
            Rank of the process, from 0.
        graph : str
            By default the one that ran at the step if that has the node, else the newest that has it.
        step : int, optional
            By default the current step.

        Examples
        --------
        >>> log = session.nodes(stack="sick_network.py:31")[0].entry.path
        >>> [(tensor.io, tensor.dtype) for tensor in session.tensors(log, step=3)]
        [('input', 'float32'), ('output', 'float32')]
        """
        graph, node = self._node_meant(node, rank, graph, step)
        tensors = self._get(list[TensorRecord], "tensors", rank=rank, graph=graph, node=node, step=step)
        return Rows.of(tensors, TENSORS)

    def statistics(
        self,
        query: str = "",
        *,
        rank: int | None = None,
        step: int | None = None,
        sort: str = "position",
        descending: bool = False,
    ) -> Rows[StatisticsRow]:
        """Return the statistics of all tensors of a step.

        Parameters
        ----------
        query : str
            A part of the node's name.
        rank : int, optional
            By default all.
        step : int, optional
            By default the current step.
        sort : str
            ``position`` (execution order), ``node``, or a statistic such as ``max``.
        descending : bool
            Whether to list the largest first.

        Examples
        --------
        >>> largest = session.statistics(step=2, sort="max", descending=True)[0]
        >>> largest.statistics.max > 1e6
        True
        """
        parameters = {
            "rank": rank,
            "step": step,
            "query": query or None,
            "sort": sort,
            "descending": descending,
        }
        return self._rows("statistics", parameters, StatisticsPage, lambda page: (page.total, page.rows), STATISTICS)

    def origins(self) -> Rows[OriginRecord]:
        """Return where NaN, infinities, exploding gradients… began: the operator and its line of code.

        Examples
        --------
        >>> [origin.line.line for origin in session.origins() if origin.anomaly == "inf"]
        [31]
        """
        return Rows.of(self._get(list[OriginRecord], "origins"), ORIGINS)

    def curves(self, *, rank: int = 0, points: int = 400) -> Curves:
        """Return loss, learning rates and gradient norms over the steps, as far as known.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.
        points : int
            Maximum number of points of a curve.

        Examples
        --------
        >>> names = {curve.name for curve in session.curves().curves}
        >>> names <= {"loss", "learning_rate", "gradient_norm", "gradient_norm_before_clipping"}
        True
        """
        return self._get(Curves, "curves", rank=rank, points=points)

    def findings(self) -> Rows[FindingRecord]:
        """Return why the training does not learn: what is certain first, causes before what follows from them.

        Examples
        --------
        >>> [finding.title for finding in session.findings()]
        []
        """
        return Rows.of(list(self.diagnosis().findings), FINDINGS)

    def diagnosis(self) -> DiagnosisRecord:
        """Return the same with the number of steps that were looked at, and the rules that could not judge.

        Examples
        --------
        >>> session.diagnosis().steps
        0
        """
        return self._get(DiagnosisRecord, "findings")

    def facts(self, subject: str, *, rank: int = 0) -> FactsRecord:
        """Return what is known of each step beside its tensors, as columns.

        Parameters
        ----------
        subject : str
            A table: ``losses``, ``parameters``, ``groups`` and others.
        rank : int
            Rank of the process, from 0.

        Examples
        --------
        >>> session.facts("losses").columns["value"]
        []
        """
        return self._connection.get(FactsRecord, self._path("facts", part(subject)), rank=rank)

    def compare(self, other: str | DumpRecord | Session, **options: Any) -> Comparison:
        """Compare this run, as the reference, with another one.

        Parameters
        ----------
        other : str, DumpRecord or Session
            A name in `Server.dumps`, a session id, or a session.
        **options
            As for `Server.compare`: ``rtol``, ``exact``, ``mapping``…

        Examples
        --------
        >>> session.compare(session, steps=[1]).verdict
        'same'
        """
        return begin_comparison(self._connection, self, other, **{"fresh": False, **options})

    def events(self, after: int = 0, timeout_s: float | None = None) -> Events:
        """Return the events of the session.

        Parameters
        ----------
        after : int
            Begin after this event number; 0 for all that the server has.
        timeout_s : float, optional
            Stop after this time without an event; by default when the session is closed.

        Examples
        --------
        >>> _ = session.watch("TO")
        >>> "watchpoints" in {event.kind for event in session.events(timeout_s=0)}
        True
        """
        return Events(self._connection, self._path("events"), after, timeout_s)

    def close(self) -> None:
        """Close the session: release a dump, or remove an ended run from the list.

        A session that `Server.open` opened for this script is also closed automatically: at the end of a ``with`` block
        over it or its server, at the end of the script, or when nothing refers to it any more.

        Examples
        --------
        >>> session.close()
        """
        self._connection.tell("DELETE", self._path())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session if `Server.open` opened it for this script; shared sessions stay open."""
        if self._connection.hold is not None:
            self._connection.hold.close()

    def _shown(self, step: int | None) -> int:
        return self.summary.step if step is None else step

    def __repr__(self) -> str:
        """Return id and name, without a request that could fail."""
        return f"<session {self.id} ({self.name})>"

    def _repr_html_(self) -> str:
        try:
            record = self._connection.get(SessionRecord, self._path(), retries=0)
        except TensightError as error:
            return session_html(self._known.model_copy(update={"message": str(error)}))
        return session_html(record)
