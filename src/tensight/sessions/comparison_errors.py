"""Errors that operators, and the scopes that contain them, add in one step of a comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tensight.sessions.graph_index import PARAMETERS
from tensight.sessions.records import AddedError, ScopeErrors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensight.compare.runs import Compared
    from tensight.compare.runs.matching import Matching
    from tensight.compare.runs.result import ComparedTensor
    from tensight.compare.runs.steps import Operation
    from tensight.sessions.records.comparing import Side

MOST_ENTRIES = 5000
"""Entries returned for a scope; of more, those with the largest added errors."""

_Kind = Literal["scope", "operator", "parameter", "parameters"]


@dataclass(slots=True)
class _Entry:
    """Errors of a scope, an operator or a parameter."""

    added: float = math.nan
    relative: float = math.nan
    divergent: int = 0
    compared: int = 0
    unmatched: int = 0

    def take(self, added: float, relative: float, *, is_divergent: bool) -> None:
        """Add a pair that belongs to the entry."""
        self.added, self.relative = _larger(self.added, added), _larger(self.relative, relative)
        self.divergent += is_divergent
        self.compared += 1


class StepErrors:
    """Added errors of one step, by scope.

    Parameters
    ----------
    compared : sequence of Compared
        The pairs of the step.
    tensors : sequence of ComparedTensor
        Weights and network inputs that were compared before the step.
    matching : Matching
        Matching of the last compared step.
    side : {"a", "b"}
        The run whose names are used.
    is_last : bool
        Whether this is the last step; only there operators without a counterpart are known.

    Attributes
    ----------
    largest : float or None
        The largest finite added error of an operator.
    """

    def __init__(
        self,
        compared: Sequence[Compared],
        tensors: Sequence[ComparedTensor],
        matching: Matching,
        side: Side,
        *,
        is_last: bool,
    ) -> None:
        self._matching = matching
        self._scopes: dict[str, dict[tuple[_Kind, str], _Entry]] = {}
        largest = -math.inf
        for compared_pair in compared:
            added, relative = _errors(compared_pair)
            if math.isfinite(added):
                largest = max(largest, added)
            operator = compared_pair.pair.a if side == "a" else compared_pair.pair.b
            for entry in self._entries(operator):
                entry.take(added, relative, is_divergent=compared_pair.is_divergent)
            self._take_outputs(compared_pair, side)
        for tensor in tensors:
            if tensor.difference is not None and tensor.difference.is_comparable:
                relative = tensor.difference.relative
                name = tensor.name_a if side == "a" else tensor.name_b
                self._take_parameter(name, relative, relative, is_divergent=not tensor.agrees)
        unmatched = matching.only_a if side == "a" else matching.only_b
        for operator in unmatched if is_last else ():
            for entry in self._entries(operator):
                entry.unmatched += 1
        self.largest = largest if math.isfinite(largest) else None

    def below(self, scope: str) -> ScopeErrors:
        """Return the entries directly below a scope; empty if nothing in it was compared."""
        entries = self._scopes.get(scope, {})
        total = len(entries)
        if total > MOST_ENTRIES:
            largest = sorted(entries.items(), key=lambda entry: _order(entry[1]), reverse=True)
            entries = dict(largest[:MOST_ENTRIES])
        return ScopeErrors(
            scope=scope,
            total=total,
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
        """Yield the entries of an operator and of all scopes above it."""
        scope = operator.node.scope
        yield self._entry(scope, "operator", operator.name)
        while scope:
            above = scope.rpartition("/")[0]
            yield self._entry(above, "scope", scope)
            scope = above

    def _take_outputs(self, compared: Compared, side: Side) -> None:
        for slot, difference in compared.outputs:
            name = slot.name if side == "a" else self._matching.parameter_in_b(slot.name)
            if slot.is_parameter and name is not None:
                self._take_parameter(name, compared.added, difference.relative, is_divergent=compared.is_divergent)

    def _take_parameter(self, name: str, added: float, relative: float, *, is_divergent: bool) -> None:
        for entry in (self._entry(PARAMETERS, "parameter", name), self._entry("", "parameters", PARAMETERS)):
            entry.take(added, relative, is_divergent=is_divergent)

    def _entry(self, scope: str, kind: _Kind, path: str) -> _Entry:
        return self._scopes.setdefault(scope, {}).setdefault((kind, path), _Entry())


def _errors(compared: Compared) -> tuple[float, float]:
    """Return the added error and the relative difference of a pair; NaN if unknown."""
    if compared.worst is None or not compared.worst[1].is_comparable:
        return math.nan, math.nan
    return compared.added, compared.worst[1].relative


def _order(entry: _Entry) -> float:
    return -1.0 if math.isnan(entry.relative) else math.inf if math.isinf(entry.relative) else entry.added


def _larger(a: float, b: float) -> float:
    if math.isnan(a):
        return b
    return a if math.isnan(b) else max(a, b)
