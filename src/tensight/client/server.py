"""A debug server, for scripts and notebooks."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from tensight.client.comparison import Comparison, begin_comparison
from tensight.client.connection import Certificate, Connection, Verify
from tensight.client.errors import WaitError
from tensight.client.events import Events
from tensight.client.formatting import DUMPS, session_html
from tensight.client.hold import Hold
from tensight.client.rows import Rows
from tensight.client.session import Session
from tensight.errors import DumpError, InputError
from tensight.sessions.errors import NotFoundError
from tensight.sessions.records import (
    ComparisonRecord,
    ConditionRecord,
    DumpRecord,
    SearchRecord,
    SearchResult,
    SessionRecord,
    State,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self


class _Greeting(BaseModel):
    name: str
    version: str


class Server:
    """A debug server that `tensight start` started; `tensight.connect` returns it.

    Parameters
    ----------
    url, token, verify, certificate
        As for `tensight.connect`.

    Raises
    ------
    UnreachableError
        No server responds there.
    AccessError
        The server requires a token, or a different one; or its certificate is not trusted.

    Examples
    --------
    >>> server
    <Tensight server at http://127.0.0.1:...>
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        verify: Verify = True,
        certificate: Certificate | None = None,
    ) -> None:
        self._connection = Connection(url, token, verify=verify, certificate=certificate)
        self._holds: weakref.WeakSet[Hold] = weakref.WeakSet()
        try:
            self._greeting = self._connection.get(_Greeting, "/server")
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The server's address.

        Examples
        --------
        >>> server.url.startswith("http://")
        True
        """
        return self._connection.url

    @property
    def version(self) -> str:
        """The server's version of Tensight when the connection was made.

        Examples
        --------
        >>> server.version == tensight.__version__
        True
        """
        return self._greeting.version

    def info(self) -> dict[str, Any]:
        """Return facts about the server: versions, limits, the address for training processes.

        Examples
        --------
        >>> sorted(server.info())[:2]
        ['api', 'debugger_address']
        """
        return self._connection.get(dict[str, Any], "/server")

    def conditions(self) -> list[ConditionRecord]:
        """Return the conditions for watchpoints.

        Examples
        --------
        >>> "tensor_overflow" in {condition.id for condition in server.conditions()}
        True
        """
        return self._connection.get(list[ConditionRecord], "/conditions")

    def dumps(self, refresh: bool = False) -> Rows[DumpRecord]:
        """Return the dumps that can be opened, and recorded runs.

        Parameters
        ----------
        refresh : bool
            Search the disk, even if the list is recent.

        Examples
        --------
        >>> "sick-2.10.0" in [dump.name for dump in server.dumps()]
        True
        """
        return Rows.of(self._connection.get(list[DumpRecord], "/dumps", refresh=refresh), DUMPS)

    def open(self, dump: str | DumpRecord, timeout_s: float | None = None, *, resume: bool = False) -> Session:
        """Open a dump, and wait until its graphs have been read.

        The session belongs to the script: it begins at step 0 without watchpoints, and does not affect users of the
        page with the same dump. It is closed at the end of the script, of a ``with`` block over it or the server, or
        when nothing refers to it any more. A training that is being recorded has one shared session.

        Parameters
        ----------
        dump : str or DumpRecord
            Its name in `dumps`.
        timeout_s : float, optional
            Seconds; by default no limit. A large dump takes a while.
        resume : bool
            Join the shared session of the dump, at its current step; if there is none, open one with the watchpoints of
            earlier sessions. It stays open when the script ends.

        Raises
        ------
        NotFoundError
            The server lists no such dump.
        DumpError
            The dump cannot be read; the message gives the reason.
        WaitError
            The dump is still being read after that time; with `resume` reading continues.
        LimitError
            The maximum number of dumps, or of sessions of scripts, is open; close one.

        Examples
        --------
        >>> server.open("sick-2.10.0").summary.framework_version
        '2.10.0'
        """
        name = dump.name if isinstance(dump, DumpRecord) else dump
        record = self._connection.send(SessionRecord, "POST", "/sessions", {"dump": name, "fresh": not resume})
        session = self._held(record) if record.fresh else Session(self._connection, record)
        try:
            record = session.wait(timeout_s)
            if record.state is State.FAILED:
                raise DumpError(f"{name}: {record.message}")
        except BaseException:
            session.__exit__()
            raise
        return session

    def _held(self, record: SessionRecord) -> Session:
        hold = Hold(self._connection, record.id)
        self._holds.add(hold)
        return Session(self._connection.of_session(hold), record)

    def sessions(self) -> list[Session]:
        """Return all sessions, oldest first.

        Examples
        --------
        >>> [each.name for each in server.sessions()]
        ['sick-2.10.0']
        """
        return [Session(self._connection, record) for record in self._records()]

    def session(self, which: str | None = None) -> Session:
        """Return a session by its id or its name, or the only one.

        Parameters
        ----------
        which : str, optional
            Id or name. Of several sessions with one name, the newest that has not ended is returned. A session that a
            script has opened for itself is found by its id only.

        Raises
        ------
        NotFoundError
            There is no such session.
        InputError
            There are several, and `which` is not given.

        Examples
        --------
        >>> server.session(session.id).name
        'sick-2.10.0'
        """
        records = self._records()
        if which is None:
            shared = [record for record in records if not record.fresh] or records
            matches = [record for record in shared if not record.state.has_ended] or shared
            if len(matches) > 1:
                raise InputError(f"there are {len(matches)} sessions; name one: {_names(matches)}")
        else:
            matches = [record for record in records if record.id == which] or sorted(
                (record for record in records if record.name == which and not record.fresh),
                key=lambda record: (record.state.has_ended, -record.created),
            )
        if not matches:
            missing = "there is no session" if which is None else f"there is no session {which!r}"
            available = f"there are: {_names(records)}" if records else "there are none"
            raise NotFoundError(f"{missing}; {available}", code="session-unknown")
        return Session(self._connection, matches[0])

    def wait_for_session(self, timeout_s: float | None = None, *, name: str = "") -> Session:
        """Wait until a training process attaches, and return its session.

        Parameters
        ----------
        timeout_s : float, optional
            Seconds; by default no limit.
        name : str
            Name of the run, ``train`` for ``train.py``: its session is returned at once if the training is already
            attached. Without a name only trainings count that attach after this call; for others see `session`.

        Raises
        ------
        WaitError
            None has attached in that time.

        Examples
        --------
        >>> session = server.wait_for_session(600)  # doctest: +SKIP
        >>> session.wait(600).step  # doctest: +SKIP
        0
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        events = self.events()
        events.skip()
        live = [record for record in self._records() if _is_attached(record)]
        earlier = {record.id for record in live}
        while True:
            for record in live:
                if record.name == name or (not name and record.id not in earlier):
                    return Session(self._connection, record)
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise WaitError(self._nobody_came(name, timeout_s, live))
            events.next(left)
            live = [record for record in self._records() if _is_attached(record)]

    def _nobody_came(self, name: str, timeout_s: float | None, live: list[SessionRecord]) -> str:
        what = f"of the name {name!r} " if name else ""
        message = f"no training process {what}has attached to {self.url} within {timeout_s:g} s"
        return f"{message}; attached before: {_names(live)}: server.session(NAME) returns one" if live else message

    def compare(
        self,
        a: str | DumpRecord | Session,
        b: str | DumpRecord | Session,
        *,
        ranks: Sequence[int] | None = None,
        steps: Sequence[int] | None = None,
        rtol: float | None = None,
        atol: float = 0.0,
        exact: bool = False,
        tolerances: Mapping[str, float] | None = None,
        mapping: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> Comparison:
        """Compare two runs: find the first operator whose inputs agree and whose output does not.

        Returns at once; reading the verdict waits for the result. Runs that were compared before with the same options
        are not compared again.

        Parameters
        ----------
        a, b : str, DumpRecord or Session
            A is the reference. A name in `dumps`, a session id, or a session; a training must be paused.
        ranks, steps : sequence of int, optional
            By default those that both have; steps count from 1.
        rtol, atol : float
            Relative difference up to which tensors count as equal, and norm of a difference that always does. By
            default the bound is derived from element types and from the inputs of operators.
        exact : bool
            Report differences of a single bit.
        tolerances : mapping of str to float, optional
            `rtol` of some operators, by name; ``*`` and ``?`` are allowed.
        mapping : mapping of str to str, optional
            Names or scopes of A, with their names in B.
        fresh : bool
            Compare again.

        Raises
        ------
        NotFoundError
            There is no such session or dump.
        StateError
            One of them is a running training; pause it first.
        LimitError
            Too many comparisons wait.

        Examples
        --------
        >>> server.compare("sick-2.10.0", session).sentence
        'The runs are the same: all tensors of 4 steps that both recorded are bit-equal.'
        """
        return begin_comparison(
            self._connection,
            a,
            b,
            fresh=fresh,
            ranks=ranks,
            steps=steps,
            rtol=rtol,
            atol=atol,
            exact=exact,
            tolerances=dict(tolerances or {}),
            mapping=dict(mapping or {}),
        )

    def comparisons(self) -> list[Comparison]:
        """Return the comparisons on the server, oldest first.

        Examples
        --------
        >>> comparison.id in [each.id for each in server.comparisons()]
        True
        """
        records = self._connection.get(list[ComparisonRecord], "/comparisons")
        return [Comparison(self._connection, record) for record in records]

    def searches(self, *, refresh: bool = False) -> list[SearchRecord]:
        """Return the hyper-parameter searches below the server's base directory.

        Parameters
        ----------
        refresh : bool
            Search the disk, even if the list is recent.

        Examples
        --------
        >>> [search.name for search in server.searches()]
        []
        """
        return self._connection.get(list[SearchRecord], "/searches", refresh=refresh)

    def search(self, name: str) -> SearchResult:
        """Return the state and the results of a hyper-parameter search.

        Parameters
        ----------
        name : str
            As in `searches`.

        Raises
        ------
        NotFoundError
            There is no such search.

        Examples
        --------
        >>> for search in server.searches():
        ...     result = server.search(search.name)
        ...     print(search.name, result.best, result.best_command)
        """
        return self._connection.get(SearchResult, "/searches/result", name=name)

    def events(self, after: int = 0, timeout_s: float | None = None) -> Events:
        """Return the events of the server's sessions.

        Parameters
        ----------
        after : int
            Begin after this event number; 0 for all that the server has.
        timeout_s : float, optional
            Stop after this time without an event; by default never.

        Examples
        --------
        >>> {event.kind for event in server.events(timeout_s=0)} <= {"state", "closed", "comparison"}
        True
        """
        return Events(self._connection, "/events", after, timeout_s, ends=False)

    def close(self) -> None:
        """Close the connections of this client, and the sessions that it opened for itself; others stay open.

        Examples
        --------
        >>> with tensight.connect(server.url) as other:
        ...     len(other.sessions())
        1
        """
        for hold in list(self._holds):
            hold.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _records(self) -> list[SessionRecord]:
        return self._connection.get(list[SessionRecord], "/sessions")

    def __repr__(self) -> str:
        """Return the address."""
        return f"<Tensight server at {self.url}>"

    def _repr_html_(self) -> str:
        return "".join(map(session_html, self._records())) or "<p>no sessions</p>"


def _is_attached(record: SessionRecord) -> bool:
    return record.capabilities.live and not record.state.has_ended


def _names(records: list[SessionRecord]) -> str:
    return ", ".join(f"{record.id} ({record.name}, {record.state.value})" for record in records[:20])
