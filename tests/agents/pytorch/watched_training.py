"""A training in this process, and a person who debugs it through a real server meanwhile."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tensight

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.client import Session
    from tensight.sessions.records import Frame, NodeHits, OriginRecord, SessionRecord
    from tests.agents.pytorch.trainings import Training
    from tests.server.running import RunningServer

PATIENCE_S = 120.0

_jobs = itertools.count(1)


@dataclass(frozen=True)
class Finding:
    """What a person saw when the training stood still, or had ended.

    Attributes
    ----------
    ended : bool
        The training went to its end; nothing hit.
    step : int
        How many steps were done.
    hits : tuple of NodeHits
        In the order in which they are shown.
    origins : tuple of OriginRecord
    reader : Frame or None
        The line that reads the first weight that hit before the first step: it is known when that has been done.
    """

    ended: bool
    step: int
    hits: tuple[NodeHits, ...] = ()
    origins: tuple[OriginRecord, ...] = ()
    reader: Frame | None = None

    def summary(self) -> str:
        """What hit, for messages of tests."""
        shown = [
            f"{node.node}:{tensor.io}:{tensor.slot} {hit.condition} {[(p.name, p.actual) for p in hit.parameters]}"
            for node in self.hits[:6]
            for tensor in node.tensors
            for hit in tensor.hits
        ]
        return f"step {self.step}: {shown}; origins {[origin.sentence for origin in self.origins]}"


@dataclass
class Person:
    """Somebody who sets the recommended watchpoints, and lets the training run until something hits."""

    watch: Callable[[Session], Any] = field(default=lambda session: session.watch_recommended())

    def debug(self, url: str, job: str) -> Finding:
        """Debug the training of a name."""
        with tensight.connect(url) as server:
            session = server.wait_for_session(PATIENCE_S, name=job)
            session.wait(PATIENCE_S)
            self.watch(session)
            return self.see(session, session.continue_().wait(PATIENCE_S))

    def see(self, session: Session, record: SessionRecord) -> Finding:
        """Look at the first stop, or the end, and end the training."""
        if record.state.has_ended:
            return Finding(ended=True, step=record.step)
        hits, origins = tuple(session.hits()), tuple(session.origins())
        reader = reading_line(session, hits[0].node) if record.step == 0 else None
        session.terminate()
        return Finding(False, record.step, hits, origins, reader)


def reading_line(session: Session, weight: str) -> Frame | None:
    """Do a step, and return the line that reads a weight in it."""
    session.step().wait(PATIENCE_S)
    readers = [session.node(reader) for reader in session.node(weight).consumers]
    frames = [frame for reader in readers for frame in reader.stack if frame.is_user_code]
    return frames[0] if frames else None


def debug(
    server: RunningServer, training: Training, steps: int, *, person: Person | None = None, **settings: Any
) -> Finding:
    """Train for some steps, or until a watchpoint hits; return what the person saw."""
    job = f"job-{next(_jobs)}"
    host, _, port = str(server.debugger).rpartition(":")
    with ThreadPoolExecutor(1) as threads:
        finding = threads.submit((person or Person()).debug, server.url, job)
        models, optimizers = training.models, training.optimizers
        settings = {"host": host, "port": int(port), "job": job, "break_at_start": True, **settings}
        try:
            with tensight.torch.debug(*models, *optimizers, **settings):
                training.run(steps)
        except SystemExit:
            """The person ended it."""
        return finding.result(PATIENCE_S)
