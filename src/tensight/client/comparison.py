"""A comparison of two runs, for scripts and notebooks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tensight.client.connection import part
from tensight.client.errors import WaitError
from tensight.client.events import Events
from tensight.client.formatting import COMPARED, UNMATCHED, comparison_html
from tensight.client.graph_reading import address_of
from tensight.client.part import SessionPart, spoken
from tensight.client.rows import Rows
from tensight.client.tensor import Values
from tensight.errors import InputError, TensightError
from tensight.graph.addresses import TensorAddress
from tensight.sessions.errors import UnavailableError
from tensight.sessions.records import (
    ComparedLosses,
    ComparedOperator,
    ComparedOperatorPage,
    ComparedSetups,
    ComparedStatistics,
    ComparisonOptions,
    ComparisonRecord,
    ComparisonState,
    DumpRecord,
    Statistics,
    UnmatchedPage,
    UnmatchedRow,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from tensight.client.connection import Connection

T = TypeVar("T")
Run = str | DumpRecord | SessionPart
"""A name in the list of dumps, a session id, a record of that list, or a session."""

_EVENT_S = 5.0
"""Seconds to wait for an event before the comparison is read again."""


def begin_comparison(connection: Connection, a: Run, b: Run, *, fresh: bool, **options: Any) -> Comparison:
    """Start a comparison of two runs on the server; see `Server.compare`."""
    body = {"a": _name_of(a), "b": _name_of(b), "fresh": fresh, **spoken(ComparisonOptions, **options)}
    return Comparison(connection, connection.send(ComparisonRecord, "POST", "/comparisons", body))


def _name_of(run: Run) -> str:
    if isinstance(run, SessionPart):
        return run.id
    return run.name if isinstance(run, DumpRecord) else run


class Comparison:
    """A comparison of two runs on the server; `Server.compare` and `Session.compare` return it.

    Parameters
    ----------
    connection : Connection
        Connection to the server.
    record : ComparisonRecord
        The comparison, as last read.

    Examples
    --------
    >>> comparison
    <comparison ...: same>
    """

    def __init__(self, connection: Connection, record: ComparisonRecord) -> None:
        self._connection = connection
        self._known = record

    @property
    def id(self) -> str:
        """The comparison's id on the server.

        Examples
        --------
        >>> comparison.id.isdigit()
        True
        """
        return self._known.id

    @property
    def summary(self) -> ComparisonRecord:
        """A summary of the comparison, as it is now; `ranks` contains the results of each rank.

        Examples
        --------
        >>> comparison.summary.ranks[0].proof.weights
        10
        """
        if self._known.state.is_unfinished:
            self._known = self._connection.get(ComparisonRecord, self._path())
        return self._known

    def wait(self, timeout_s: float | None = None) -> ComparisonRecord:
        """Wait until the runs are compared.

        Parameters
        ----------
        timeout_s : float, optional
            Seconds; by default no limit.

        Raises
        ------
        InputError
            The runs cannot be read or have no rank in common; the message gives the reason.
        WaitError
            The comparison has not finished in that time; it continues.
        NotFoundError
            The comparison was cancelled.

        Examples
        --------
        >>> comparison.wait(600).state.value
        'done'
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        events = Events(self._connection, "/events", 0, None, ends=False)
        if self._known.state.is_unfinished:
            events.skip()
        while self.summary.state.is_unfinished:
            left = _EVENT_S if end is None else min(_EVENT_S, end - time.monotonic())
            if left <= 0:
                raise WaitError(f"after {timeout_s:g} s comparison {self.id} is still {self._known.what}")
            events.next(left)
        if self._known.state is ComparisonState.FAILED:
            raise InputError(self._known.message)
        return self._known

    @property
    def verdict(self) -> Literal["same", "different", "not comparable"]:
        """Whether the runs are the same; waits for the end of the comparison.

        Examples
        --------
        >>> comparison.verdict
        'same'
        """
        verdict = self.wait().verdict
        assert verdict is not None  # noqa: S101 - it is done
        return verdict

    @property
    def sentence(self) -> str:
        """The verdict in words.

        Examples
        --------
        >>> comparison.sentence
        'The runs are the same: all tensors of 4 steps that both recorded are bit-equal.'
        """
        return self.wait().sentence

    @property
    def first(self) -> ComparedOperator | None:
        """The first operator whose inputs agree and whose output does not; with several ranks that of the worst rank.

        Examples
        --------
        >>> comparison.first is None
        True
        """
        record = self.wait()
        return next((rank.first for rank in record.ranks if rank.sentence == record.sentence), None)

    def operators(
        self,
        query: str = "",
        *,
        rank: int | None = None,
        step: int | None = None,
        phase: Literal["forward", "backward", "update"] | None = None,
        only: Literal["all", "different", "divergent"] = "all",
        sort: Literal["position", "added", "relative", "name"] = "position",
        descending: bool = False,
    ) -> Rows[ComparedOperator]:
        """Return the pairs of operators, with the differences of their inputs and outputs.

        Parameters
        ----------
        query : str
            Parts of a name in either run, or of the type.
        rank : int, optional
            By default the first compared rank.
        step : int, optional
            By default all compared steps.
        phase : {"forward", "backward", "update"}, optional
            By default the whole step.
        only : {"all", "different", "divergent"}
            "different": not known to be bit-equal; "divergent": inputs agree, but outputs do not.
        sort : {"position", "added", "relative", "name"}
            By execution order, by the error that an operator adds, by the relative difference of its outputs, or by
            name.
        descending : bool
            Whether to list the largest first.

        Examples
        --------
        >>> len(comparison.operators(step=1, only="different"))
        0
        """
        parameters = {
            "query": query or None,
            "rank": rank,
            "step": step,
            "phase": phase,
            "only": only,
            "sort": sort,
            "descending": descending,
        }

        def fetch(offset: int, limit: int) -> tuple[int, tuple[ComparedOperator, ...]]:
            page = self._get(ComparedOperatorPage, "operators", **parameters, offset=offset, limit=limit)
            return page.total, page.rows

        self.wait()
        return Rows(fetch, COMPARED)

    def unmatched(
        self, side: Literal["a", "b"] = "a", query: str = "", *, rank: int | None = None
    ) -> Rows[UnmatchedRow]:
        """Return operators and parameters that only one run has, in the last compared step.

        Parameters
        ----------
        side : {"a", "b"}
            The run that has them.
        query : str
            Parts of the name or type, case-insensitive.
        rank : int, optional
            Rank of the process; by default the first.

        Examples
        --------
        >>> len(comparison.unmatched("a"))
        0
        """

        def fetch(offset: int, limit: int) -> tuple[int, tuple[UnmatchedRow, ...]]:
            page = self._get(
                UnmatchedPage, "unmatched", side=side, query=query or None, rank=rank, offset=offset, limit=limit
            )
            return page.total, page.rows

        self.wait()
        return Rows(fetch, UNMATCHED)

    def losses(self, *, rank: int | None = None, points: int = 400) -> ComparedLosses:
        """Return both loss curves, and the likely cause of their difference.

        Parameters
        ----------
        rank : int, optional
            Rank of the processes; by default the first.
        points : int
            Maximum number of points of a curve.

        Examples
        --------
        >>> comparison.losses().verdict
        'same'
        """
        self.wait()
        return self._get(ComparedLosses, "losses", rank=rank, points=points)

    def setups(self) -> ComparedSetups:
        """Return the differences in versions, flags, seeds, hyper-parameters, first batches and initial weights.

        Examples
        --------
        >>> comparison.setups().sentence
        'sick-2.10.0 has no description of its set-up.'
        """
        self.wait()
        return self._get(ComparedSetups, "setups")

    def tensor(self, a: object, b: object = None) -> ComparedTensor:
        """Return a handle on B minus A of a tensor; `ComparedTensor.a` and `.b` are the two sides.

        Parameters
        ----------
        a : str, or a record with an address
            A tensor of A, such as an output of an operator of `operators`.
        b : str, or a record with an address, optional
            A tensor of B; by default the counterpart of `a`.

        Examples
        --------
        >>> comparison.tensor(comparison.operators(step=1)[0].outputs[0]).statistics().max
        0.0
        """
        other = None if b is None else TensorAddress.parse(address_of(b))
        return ComparedTensor(self._connection, self._path(), TensorAddress.parse(address_of(a)), other, "difference")

    def close(self) -> None:
        """Cancel the comparison, or delete it from the server.

        Examples
        --------
        >>> server.compare(session, session, exact=True).close()
        """
        self._connection.tell("DELETE", self._path())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _path(self, *names: str) -> str:
        return "/".join(("/comparisons", part(self.id), *names))

    def _get(self, kind: type[T], name: str, **parameters: Any) -> T:
        return self._connection.get(kind, self._path(name), **parameters)

    def __repr__(self) -> str:
        """Return id and verdict, if known, without a request that could fail."""
        return f"<comparison {self.id}: {self._known.verdict or self._known.state.value}>"

    def _repr_html_(self) -> str:
        try:
            return comparison_html(self.summary)
        except TensightError as error:
            return comparison_html(self._known.model_copy(update={"message": str(error)}))


class ComparedTensor(Values):
    """A tensor of a comparison: B minus A, or one side of it; `Comparison.tensor` returns it.

    Parameters
    ----------
    connection : Connection
        Connection to the server.
    path : str
        Path of the comparison on the server.
    a : TensorAddress
        The tensor of run A.
    b : TensorAddress or None
        The tensor of run B; None for the counterpart of `a`.
    which : {"a", "b", "difference"}
        The tensor of A or B, or B minus A.

    Examples
    --------
    >>> comparison.tensor(comparison.operators(step=1)[0].outputs[0])
    <B − A of 0/...>
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        a: TensorAddress,
        b: TensorAddress | None,
        which: Literal["a", "b", "difference"],
    ) -> None:
        super().__init__(connection, path, a, "difference")
        self._b, self._side = b, which
        self._parameters = {"a": str(a), "b": None if b is None else str(b), "which": which}

    @property
    def a(self) -> ComparedTensor:
        """The tensor of A.

        Examples
        --------
        >>> output = comparison.operators(step=1)[0].outputs[0]
        >>> comparison.tensor(output).a.statistics() == session.tensor(output).statistics()
        True
        """
        return ComparedTensor(self._connection, self._path, self._where, self._b, "a")

    @property
    def b(self) -> ComparedTensor:
        """The tensor of B, with its axes in the order of A.

        Examples
        --------
        >>> tensor = comparison.tensor(comparison.operators(step=1)[0].outputs[0])
        >>> bool((tensor.b.slice() == tensor.a.slice()).all())
        True
        """
        return ComparedTensor(self._connection, self._path, self._where, self._b, "b")

    def statistics(self) -> Statistics:
        """Return minimum, maximum, mean, counts of NaN and so on, over all elements.

        Raises
        ------
        UnavailableError
            For the difference, if one side has no values.

        Examples
        --------
        >>> comparison.tensor(comparison.operators(step=1)[0].outputs[0]).statistics().zero_count > 0
        True
        """
        both = self.compared()
        statistics = {"a": both.a, "b": both.b, "difference": both.difference}[self._side]
        if statistics is None:
            raise UnavailableError(
                f"of {self.address} or its counterpart only statistics were recorded", code="statistics-only"
            )
        return statistics

    def compared(self) -> ComparedStatistics:
        """Return the statistics of both tensors and of their difference, and all measures of the difference.

        Examples
        --------
        >>> comparison.tensor(comparison.operators(step=1)[0].outputs[0]).compared().measures.bit_equal
        True
        """
        parameters = {name: value for name, value in self._parameters.items() if name != "which"}
        return self._get(ComparedStatistics, "statistics", **parameters)

    def __repr__(self) -> str:
        """Return the side, and the address in A."""
        return f"<{'B − A' if self._side == 'difference' else self._side.upper()} of {self.address}>"
