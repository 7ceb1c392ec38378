"""A diagnosis as JSON of a bounded size, for an assistant: what matters most first, cut at whole items."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from tensight.cli.diagnosis.plain_text import lines, one_line
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.cli.diagnosis.report import Report

LEAST_BYTES = 1_000
"""What any diagnosis without its items needs."""

_MOST_POINTS, _MOST_NAMES = 40, 12
_MOST_FAILURE = 300


def require_budget(budget_bytes: int) -> None:
    """Refuse a budget that is too small for anything.

    Parameters
    ----------
    budget_bytes : int

    Raises
    ------
    InputError
    """
    if budget_bytes < LEAST_BYTES:
        raise InputError(f"a budget of {budget_bytes:,} bytes is too small; give at least {LEAST_BYTES:,}")


def within_budget(report: Report, budget_bytes: int) -> str:
    """Return a diagnosis as one line of JSON.

    Parameters
    ----------
    report : Report
    budget_bytes : int
        Maximum size with the line break at its end.

    Returns
    -------
    str
        The same keys as without a budget, apart from words in Chinese and values; in this order, as many as fit: all
        findings with their places, their evidence, what to do next, what follows from them, probes, the set-up, the
        course of the loss and of what findings are about, why rules could not judge, and which found nothing.
        ``left_out`` has the numbers of items that did not fit.

    Raises
    ------
    InputError
        The budget is too small for anything.
    """
    require_budget(budget_bytes)
    document: dict[str, Any] = {
        "steps": report.diagnosis.steps,
        "failure": "",
        "findings": [],
        "setup": {},
        "curves": [],
        "undecided": [],
        "passed": [],
        "probes": [],
        "remarks": [],
    }
    items = list(_items(report))
    left_out: dict[str, int] = {}
    for kind, *_ in items:
        left_out[kind] = left_out.get(kind, 0) + 1
    # What is counted as left out takes the most room now; the numbers only become smaller.
    room = budget_bytes - len(_text({**document, "left_out": left_out}).encode()) - 1
    full: set[str] = set()
    for kind, path, key, value in items:
        target = _at(document, path)
        size = len(_text(value).encode()) + (0 if key is None else len(_text(key).encode()) + 1) + 1
        if target is None or kind in full or size > room:
            # Of a kind, none is shown after one that did not fit.
            full.add(kind)
            continue
        if key is None:
            target.append(value)
        else:
            target[key] = value
        room -= size
        left_out[kind] -= 1
    document["left_out"] = {kind: count for kind, count in left_out.items() if count}
    return _text(document)


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    """Return what is at a path of a document; None if the finding there did not fit."""
    for part in path:
        if isinstance(document, list) and part >= len(document):
            return None
        document = document[part]
    return document


def _items(report: Report) -> Iterator[tuple[str, tuple[Any, ...], str | None, Any]]:
    """Yield what can be left out, the most important first: its kind, where it belongs, its key there, and itself."""
    findings = report.diagnosis.findings
    for finding in findings:
        position = report.position(finding)
        head = {
            "rule": finding.rule,
            "category": finding.category,
            "certainty": finding.certainty,
            "step": finding.step,
            "title": one_line(finding.title),
            "where": {},
        }
        yield (
            "findings",
            ("findings",),
            None,
            ({**head, "position": f"{one_line(position.file)}:{position.line}"} if position else head),
        )
    if report.ending.failure:
        yield "failure", (), "failure", lines(report.ending.failure, _MOST_FAILURE)
    for at, finding in enumerate(findings):
        if finding.evidence:
            yield "evidence", ("findings", at), "evidence", [one_line(sentence) for sentence in finding.evidence]
    for at, finding in enumerate(findings):
        if finding.advice:
            yield "advice", ("findings", at), "advice", one_line(finding.advice)
    for at, finding in enumerate(findings):
        for key, names in finding.where.items():
            yield "where", ("findings", at, "where"), key, one_line(names)
    for at, finding in enumerate(findings):
        if finding.explains:
            yield "explains", ("findings", at), "explains", [one_line(other) for other in finding.explains]
    for row in report.probes:
        shown = {name: one_line(value) if isinstance(value, str) else value for name, value in row.items()}
        yield "probes", ("probes",), None, shown
    for key, texts in report.setup.items():
        yield "setup", ("setup",), key, [one_line(each) for each in texts]
    for curve in (*report.losses, *report.curves):
        few = curve.thinned(_MOST_POINTS)
        values = _plain([float(f"{value:.5g}") for value in few.values])
        shown = {"fact": few.fact, "names": [one_line(name) for name in few.names[:_MOST_NAMES]]}
        yield "curves", ("curves",), None, {**shown, "steps": few.steps, "values": values}
    for remark in report.remarks:
        yield "remarks", ("remarks",), None, one_line(remark)
    for undecided in report.diagnosis.undecided:
        yield "undecided", ("undecided",), None, {"rule": undecided.rule, "why": one_line(undecided.why)}
    for rule in report.diagnosis.passed:
        yield "passed", ("passed",), None, rule


def _plain(values: list[float]) -> list[float | str]:
    names = {math.inf: "Infinity", -math.inf: "-Infinity"}
    return [value if math.isfinite(value) else names.get(value, "NaN") for value in values]


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
