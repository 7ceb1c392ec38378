"""Records of the origins of anomalies, with the stack and the code around the user's line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensight.analysis import Anomaly
from tensight.analysis.consequences import Effect, explains, is_of_gradient
from tensight.graph.steps import iteration_of, step_of
from tensight.sessions.records import CodeLine, OriginRecord
from tensight.sessions.sources import frame_records
from tensight.watchpoints.causes import Since

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tensight.analysis import Origin
    from tensight.graph import Node
    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.records import Frame

LINES_AROUND = 3
"""Lines of code shown before and after the line where an anomaly began."""


def origin_records(origins: Iterable[Origin], texts: Mapping[str, str]) -> tuple[OriginRecord, ...]:
    """Return the records of origins.

    Parameters
    ----------
    origins : iterable of Origin
    texts : mapping of str to str
        Texts of source files by path, as far as the training process sent them.
    """
    return tuple(_origin_record(origin, texts) for origin in origins)


def with_line(origin: Origin, used: Callable[[str, str], Node | None]) -> Origin:
    """Return an origin with the stack of the operator that uses it, if it has no line of user code itself.

    Parameters
    ----------
    origin : Origin
    used : callable
        Returns the operator that uses a node, given by graph and name; see `node_of_use`. None if there is none.
    """
    if origin.user_frame is not None:
        return origin
    reader = used(origin.address.graph, origin.operator)
    return origin if reader is None else replace(origin, frames=reader.frames)


def effects_of(hits: Iterable[SessionHit]) -> dict[Anomaly, list[Effect]] | None:
    """Return the tensors that watchpoints hit, by the anomalies that may explain the hits; None if there is no hit.

    Parameters
    ----------
    hits : iterable of SessionHit
        Hits of the shown step.
    """
    actual_hits = [hit for hit in hits if hit.hit.hit]
    if not actual_hits:
        return None
    effects: dict[Anomaly, list[Effect]] = {}
    for hit in actual_hits:
        for anomaly in Anomaly:
            if explains(anomaly, hit.hit.condition):
                of_gradient = is_of_gradient(hit.hit.condition)
                since = None
                if hit.hit.since is not None:
                    first = iteration_of(hit.hit.since)
                    # Momentum moves a weight for some time after its gradient has become zero.
                    since = Since(first, hit.hit.may_be_older or (of_gradient and first > 0))
                effect = Effect(hit.rank, hit.graph, hit.node, hit.iteration, since=since, of_gradient=of_gradient)
                effects.setdefault(anomaly, []).append(effect)
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
        changed=origin.changed,
        is_left_out=origin.is_left_out,
        stack=frames,
        line=line,
        excerpt=() if line is None else excerpt(line, texts),
        candidates=origin.candidates,
        also=origin.also,
    )


def excerpt(line: Frame, texts: Mapping[str, str]) -> tuple[CodeLine, ...]:
    """Return the lines of a frame with surrounding lines; empty if the text of the file is unknown or has changed."""
    lines = texts.get(line.file, "").splitlines()
    if line.line is None or not 1 <= line.line <= len(lines) or line.code.strip() not in lines[line.line - 1]:
        return ()
    end = max(line.end_line or line.line, line.line)
    first, last = max(line.line - LINES_AROUND, 1), min(end + LINES_AROUND, len(lines))
    return tuple(CodeLine(line=number, code=lines[number - 1]) for number in range(first, last + 1))
