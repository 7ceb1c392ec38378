"""Watchpoints of a session, and their hits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tensight.client.formatting import HITS, WATCHPOINTS
from tensight.client.part import SessionPart, spoken
from tensight.client.rows import Rows
from tensight.errors import InputError
from tensight.sessions.errors import StateError
from tensight.sessions.records import (
    ConditionRecord,
    Edit,
    HitPage,
    NodeHits,
    WatchpointChange,
    WatchpointRecord,
    WatchpointSpec,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


Severity = Literal["error", "warning"]


class Watching(SessionPart):
    """Watchpoints and hits."""

    def conditions(self) -> list[ConditionRecord]:
        """Return the conditions for watchpoints, each with whether it can be checked in this session now.

        Examples
        --------
        >>> [condition.id for condition in session.conditions() if condition.abbreviation == "TL"]
        ['tensor_too_large']
        """
        return self._get(list[ConditionRecord], "conditions")

    def watch(
        self,
        condition: str,
        *,
        on: str | None = None,
        edits: Sequence[Edit] = (),
        name: str = "",
        severity: Severity = "warning",
        enabled: bool = True,
        persistence: int = 1,
        **parameters: float | bool,
    ) -> WatchpointRecord:
        """Set a watchpoint: the run stops when the condition is true for a tensor.

        If an earlier session has set an equal one, which was kept, that is returned: a script may be run again.

        Parameters
        ----------
        condition : str
            Its id or abbreviation, see `conditions`.
        on : str, optional
            The tensors: ``all``, ``weights``, ``trainable_weights``, ``gradients``, ``activations``, ``type:Conv2D``,
            ``name:REGEX``, or ``none`` to choose them by `edits` alone; by default the target of the condition.
        edits : sequence of Edit
            Nodes and scopes to add or remove afterwards.
        name : str
            Display name. The server keeps watchpoints for the next session of the same dump, or of the same network
            under the same name.
        severity : {"error", "warning"}
            Severity of a hit: an error breaks a training, a warning may have a harmless cause.
        enabled : bool
            Whether it is checked.
        persistence : int
            Number of steps in a row in which the condition must hold on a tensor before it is a hit.
        **parameters : float or bool
            Thresholds, such as ``max_gt=100``.

        Returns
        -------
        WatchpointRecord
            With the number of nodes that it watches.

        Raises
        ------
        InputError
            There is no such condition, or a parameter is wrong; the message says what is possible.
        StateError
            Watchpoints cannot be changed now, while the run goes on.

        Examples
        --------
        >>> watchpoint = session.watch("tensor_too_large", max_gt=1e6, on="gradients", name="exploding")
        >>> watchpoint.text
        'tensor_too_large(max_gt=1000000)'
        """
        spec = spoken(
            WatchpointSpec,
            condition=condition,
            parameters=parameters,
            name=name,
            selection=on,
            edits=tuple(edits),
            severity=severity,
            enabled=enabled,
            persistence=persistence,
        )
        return self._connection.send(WatchpointRecord, "POST", self._path("watchpoints"), spec)

    def watch_recommended(self, accept: bool = True) -> list[WatchpointRecord]:
        """Set the watchpoints that suit most networks, or decline them.

        Watchpoints that are already set, by this session or an earlier one of the same network, stay as they are; they
        are returned, too.

        Parameters
        ----------
        accept : bool
            False to decline them.

        Examples
        --------
        >>> recommended = session.watch_recommended()
        >>> "tensor_overflow" in {watchpoint.condition for watchpoint in recommended}
        True
        """
        path = self._path("watchpoints", "recommended")
        return self._connection.send(list[WatchpointRecord], "POST", path, {"accept": accept})

    def watchpoints(self) -> Rows[WatchpointRecord]:
        """Return the watchpoints, by id.

        Examples
        --------
        >>> _ = session.watch("TO", name="overflow")
        >>> [(watchpoint.name, watchpoint.text) for watchpoint in session.watchpoints()]
        [('overflow', 'tensor_overflow()')]
        """
        return Rows.of(self._get(list[WatchpointRecord], "watchpoints"), WATCHPOINTS)

    def change_watchpoint(
        self,
        watchpoint: int | WatchpointRecord,
        *,
        on: str | None = None,
        edits: Sequence[Edit] | None = None,
        further_edits: Sequence[Edit] = (),
        name: str | None = None,
        severity: Severity | None = None,
        enabled: bool | None = None,
        persistence: int | None = None,
        **parameters: float | bool,
    ) -> WatchpointRecord:
        """Change a watchpoint; omitted arguments leave it as it is.

        Parameters
        ----------
        watchpoint : int or WatchpointRecord
            Its number, or what `watch` returned.
        on, edits, name, severity, enabled, persistence
            As in `watch`.
        further_edits : sequence of Edit
            Appended to its edits.
        **parameters : float or bool
            If any is given, they replace all thresholds.

        Examples
        --------
        >>> watchpoint = session.watch("TL", max_gt=10)
        >>> session.change_watchpoint(watchpoint, max_gt=100, enabled=False).text
        'tensor_too_large(max_gt=100)'
        """
        change = spoken(
            WatchpointChange,
            parameters=parameters or None,
            name=name,
            selection=on,
            edits=None if edits is None else tuple(edits),
            further_edits=tuple(further_edits),
            severity=severity,
            enabled=enabled,
            persistence=persistence,
        )
        path = self._path("watchpoints", str(_number(watchpoint)))
        return self._connection.send(WatchpointRecord, "PATCH", path, change)

    def delete_watchpoints(self, *watchpoints: int | WatchpointRecord) -> None:
        """Delete the given watchpoints, or all if none is given.

        Parameters
        ----------
        *watchpoints : int or WatchpointRecord
            Their numbers, or what `watch` returned.

        Examples
        --------
        >>> watchpoint = session.watch("TO")
        >>> session.delete_watchpoints(watchpoint)
        >>> len(session.watchpoints())
        0
        """
        if not watchpoints:
            self._connection.tell("DELETE", self._path("watchpoints"))
        for watchpoint in watchpoints:
            self._connection.tell("DELETE", self._path("watchpoints", str(_number(watchpoint))))

    def hits(
        self, *, rank: int | None = None, graph: str = "", watchpoint: int | WatchpointRecord | None = None
    ) -> Rows[NodeHits]:
        """Return the hits of the watchpoints in the current step, in execution order.

        Parameters
        ----------
        rank : int, optional
            Only hits of this rank.
        graph : str
            Only hits in this graph.
        watchpoint : int or WatchpointRecord, optional
            Only hits of this watchpoint.

        Returns
        -------
        Rows of NodeHits
            Node by node; each has the tensors with their hits, and the line of code behind the node.

        Raises
        ------
        StateError
            While iterating, if the session has continued to another step meanwhile.

        Examples
        --------
        >>> _ = session.watch("tensor_overflow")
        >>> _ = session.continue_().wait(60)
        >>> first = session.hits()[0]
        >>> first.type, first.line.line, first.tensors[0].hits[0].condition
        ('Log', 31, 'tensor_overflow')
        """
        steps: list[int] = []

        def rows(page: HitPage) -> tuple[int, Sequence[NodeHits]]:
            steps.append(page.step)
            if page.step != steps[0]:
                raise StateError(f"the session has moved from step {steps[0]} to {page.step}; ask for its hits again")
            return page.total, page.nodes

        number = None if watchpoint is None else _number(watchpoint)
        parameters = {"rank": rank, "graph": graph or None, "watchpoint": number}
        return self._rows("hits", parameters, HitPage, rows, HITS)


def _number(watchpoint: int | WatchpointRecord) -> int:
    number = watchpoint.id if isinstance(watchpoint, WatchpointRecord) else watchpoint
    if not isinstance(number, int) or number < 1:
        raise InputError(f"{watchpoint!r} is not a watchpoint; give its id, which counts from 1")
    return number
