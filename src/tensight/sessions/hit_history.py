"""The hits of all steps of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensight.sessions.hit_list import SessionHit

MOST_HITS = 50_000
"""Hits kept of a run, all steps together.

Hits of steps at which the training did not stop are dropped first, then those of other steps, oldest first.
"""


class HitHistory:
    """The hits of all steps of a run, up to `MOST_HITS`."""

    def __init__(self, steps: Mapping[int, Iterable[SessionHit]] | None = None) -> None:
        self._steps = {step: tuple(hits) for step, hits in (steps or {}).items()}
        self._total = sum(map(len, self._steps.values()))
        self._without_stop: dict[int, None] = {}

    def set(self, step: int, hits: tuple[SessionHit, ...]) -> None:
        """Replace the hits of a step."""
        self._without_stop.pop(step, None)
        self._set(step, hits)

    def add(self, step: int, hits: Iterable[SessionHit]) -> None:
        """Add hits of a step at which the training did not stop."""
        if step not in self._steps:
            self._without_stop[step] = None
        self._set(step, (*self.of(step), *hits))

    def _set(self, step: int, hits: tuple[SessionHit, ...]) -> None:
        hits = hits[:MOST_HITS]
        self._total += len(hits) - len(self._steps.pop(step, ()))
        if hits:
            self._steps[step] = hits
        while self._total > MOST_HITS and len(self._steps) > 1:
            dropped = next(iter(self._without_stop), None)
            if dropped is None or dropped == step:
                dropped = next(iter(self._steps))
            self._without_stop.pop(dropped, None)
            self._total -= len(self._steps.pop(dropped))

    def of(self, step: int) -> tuple[SessionHit, ...]:
        """Return the hits of a step."""
        return self._steps.get(step, ())

    def snapshot(self) -> dict[int, tuple[SessionHit, ...]]:
        """Return a copy of the current hits by step."""
        return dict(self._steps)
