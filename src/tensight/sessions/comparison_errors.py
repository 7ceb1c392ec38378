"""By how much the parts of a graph differ in one step of a comparison: operators, and the scopes that hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tensight.sessions.graph_index import PARAMETERS
from tensight.sessions.records import AddedError, ScopeErrors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensight.compare.runs import Compared
    from tensight.compare.runs.steps import Operation
    from tensight.sessions.records.comparing import Side

_Kind = Literal["scope", "operator", "parameter"]


@dataclass(slots=True)
class _Entry:
    """What is known of a scope, an operator or a parameter."""

    added: float = math.nan
    relative: float = math.nan
    divergent: int = 0
    compared: int = 0
    unmatched: int = 0

    def take(self, added: float, relative: float, *, is_divergent: bool) -> None:
        """Count a pair that belongs to it."""
        self.added, self.relative = _larger(self.added, added), _larger(self.relative, relative)
        self.divergent += is_divergent
        self.compared += 1


class StepErrors:
    """Added errors of one step, by scope.

    Parameters
    ----------
    compared : sequence of Compared
        The pairs of the step.
    unmatched : sequence of Operation
        Operators of the side without a counterpart, as far as they are known.
    side : {"a", "b"}
        Whose names are used.

    Attributes
    ----------
    largest : float or None
        The largest finite added error of an operator.
    """

    def __init__(self, compared: Sequence[Compared], unmatched: Sequence[Operation], side: Side) -> None:
        self._scopes: dict[str, dict[tuple[_Kind, str], _Entry]] = {}
        largest = -math.inf
        for one in compared:
            added, relative = _errors(one)
            if math.isfinite(added):
                largest = max(largest, added)
            operator = one.pair.a if side == "a" else one.pair.b
            for entry in self._entries(operator):
                entry.take(added, relative, is_divergent=one.is_divergent)
            if side == "a":
                self._take_parameters(one)
        for operator in unmatched:
            for entry in self._entries(operator):
                entry.unmatched += 1
        self.largest = largest if math.isfinite(largest) else None

    def below(self, scope: str) -> ScopeErrors:
        """Return what is directly below a scope; nothing for one of which nothing was compared."""
        entries = self._scopes.get(scope, {})
        return ScopeErrors(
            scope=scope,
            entries=tuple(
                AddedError(
                    path=path,
                    kind=kind,
                    added=entry.added,
                    relative=entry.relative,
                    non_finite=math.isinf(entry.relative),
                    divergent=entry.divergent,
                    compared=entry.compared,
                    unmatched=entry.unmatched,
                )
                for (kind, path), entry in entries.items()
            ),
        )

    def _entries(self, operator: Operation) -> Iterator[_Entry]:
        """Yield the entry of an operator, and those of all scopes above it."""
        scope = operator.node.scope
        yield self._entry(scope, "operator", operator.name)
        while scope:
            above = scope.rpartition("/")[0]
            yield self._entry(above, "scope", scope)
            scope = above

    def _take_parameters(self, one: Compared) -> None:
        for slot, found in one.outputs:
            if slot.is_parameter:
                relative = found.relative
                for entry in (self._entry(PARAMETERS, "parameter", slot.name), self._entry("", "scope", PARAMETERS)):
                    entry.take(one.added, relative, is_divergent=one.is_divergent)

    def _entry(self, scope: str, kind: _Kind, path: str) -> _Entry:
        return self._scopes.setdefault(scope, {}).setdefault((kind, path), _Entry())


def _errors(one: Compared) -> tuple[float, float]:
    """Return the added error and the relative difference of a pair; NaN where nothing is known."""
    if one.worst is None or not one.worst[1].is_comparable:
        return math.nan, math.nan
    return one.added, one.worst[1].relative


def _larger(one: float, other: float) -> float:
    if math.isnan(one):
        return other
    return one if math.isnan(other) else max(one, other)
