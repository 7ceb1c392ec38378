"""The hits of all steps of a run, not only of the one that is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensight.sessions.hit_list import SessionHit

MOST_HITS = 50_000
"""Hits kept of a run, all steps together; those of the oldest steps are dropped first."""


class HitHistory:
    """The hits of all steps of a run, as far as there is room."""

    def __init__(self, steps: Mapping[int, Iterable[SessionHit]] | None = None) -> None:
        self._steps = {step: tuple(hits) for step, hits in (steps or {}).items()}
        self._total = sum(map(len, self._steps.values()))

    def set(self, step: int, hits: tuple[SessionHit, ...]) -> None:
        """Note the hits of a step in place of those that were noted of it."""
        hits = hits[:MOST_HITS]
        self._total += len(hits) - len(self._steps.pop(step, ()))
        if hits:
            self._steps[step] = hits
        while self._total > MOST_HITS and len(self._steps) > 1:
            self._total -= len(self._steps.pop(next(iter(self._steps))))

    def of(self, step: int) -> tuple[SessionHit, ...]:
        """Return the hits of a step."""
        return self._steps.get(step, ())

    def snapshot(self) -> dict[int, tuple[SessionHit, ...]]:
        """Return the hits by step, as they are now."""
        return dict(self._steps)
