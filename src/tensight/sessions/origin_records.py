"""Where anomalies began, as sessions tell it: with the stack, and the code around the person's own line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensight.analysis import Anomaly
from tensight.analysis.consequences import Effect, explains
from tensight.graph.steps import step_of
from tensight.sessions.records import CodeLine, OriginRecord
from tensight.sessions.sources import frame_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tensight.analysis import Origin
    from tensight.graph import Node
    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.records import Frame

LINES_AROUND = 3
"""Lines of code that are shown before and after the one where an anomaly began."""


def origin_records(origins: Iterable[Origin], texts: Mapping[str, str]) -> tuple[OriginRecord, ...]:
    """Return what a session tells about origins.

    Parameters
    ----------
    origins : iterable of Origin
    texts : mapping of str to str
        Of files of code, by path, as far as the training process sent them.
    """
    return tuple(_origin_record(origin, texts) for origin in origins)


def with_line(origin: Origin, used: Callable[[str, str], Node | None]) -> Origin:
    """Return an origin with the stack of where it is used, if it has none of its own.

    Parameters
    ----------
    origin : Origin
    used : callable
        Returns for a graph and the name of a node the operator in whose line a person looks for it; None if there is
        none.
    """
    if origin.user_frame is not None:
        return origin
    reader = used(origin.address.graph, origin.operator)
    return origin if reader is None else replace(origin, frames=reader.frames)


def effects_of(hits: Iterable[SessionHit]) -> dict[Anomaly, list[Effect]] | None:
    """Return what watchpoints hit on, by the anomalies that may explain it; None if there is no hit.

    Parameters
    ----------
    hits : iterable of SessionHit
        Of the step that is shown.
    """
    found = [one for one in hits if one.hit.hit]
    if not found:
        return None
    effects: dict[Anomaly, list[Effect]] = {}
    for one in found:
        for anomaly in Anomaly:
            if explains(anomaly, one.hit.condition):
                effects.setdefault(anomaly, []).append(Effect(one.rank, one.graph, one.node, one.iteration))
    return effects


def _origin_record(origin: Origin, texts: Mapping[str, str]) -> OriginRecord:
    frames = frame_records(origin.frames)
    line = next((frame for frame in frames if frame.is_user_code), None)
    return OriginRecord(
        anomaly=origin.anomaly.value,
        sentence=origin.sentence,
        address=str(origin.address),
        node=origin.operator,
        type=origin.op_type,
        step=origin.address.step,
        certain=origin.certain,
        arrived=origin.arrived,
        unseen=None if origin.unseen is None else (step_of(origin.unseen[0]), step_of(origin.unseen[1])),
        is_older=origin.is_older,
        stack=frames,
        line=line,
        excerpt=() if line is None else excerpt(line, texts),
        candidates=origin.candidates,
        also=origin.also,
    )


def excerpt(line: Frame, texts: Mapping[str, str]) -> tuple[CodeLine, ...]:
    """Return lines with those around them; none if the text of their file is not known, or is another now."""
    lines = texts.get(line.file, "").splitlines()
    if line.line is None or not 1 <= line.line <= len(lines) or line.code.strip() not in lines[line.line - 1]:
        return ()
    end = max(line.end_line or line.line, line.line)
    first, last = max(line.line - LINES_AROUND, 1), min(end + LINES_AROUND, len(lines))
    return tuple(CodeLine(line=number, code=lines[number - 1]) for number in range(first, last + 1))
