"""A diagnosis as a page for browsers and printers: one file that needs nothing else."""

from __future__ import annotations

import html
import itertools
import math
import re
from typing import TYPE_CHECKING

from tensight.cli.diagnosis.plain_text import lines, one_line
from tensight.cli.diagnosis.probes import outcome_text, probe_sentences
from tensight.cli.diagnosis.report import names_in
from tensight.cli.diagnosis.words import LANGUAGES, WORDS, counted, text
from tensight.cli.reports.parts import RED, Picture, folded, table, write_page
from tensight.diagnosis.findings import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tensight.cli.diagnosis.report import Curve, Report
    from tensight.sessions.records import FindingRecord

_COLOURS = ("#3b76c4", "#d9822b", "#2a8a4a", "#8a5cc9")
_CERTAINTIES = {"certain": RED, "likely": "#b87503", "possible": "#7a7a7a"}
_KINDS = ("operator", "module", "parameter", "optimizer", "rank")
_MOST_NAMES, _MOST_NAME = 12, 200
_WIDTH = 640
_LOGARITHMIC_FROM = 50.0
"""How many times the lowest value the highest one is on a logarithmic scale."""

_MOST_CODE = 300
_CODE = re.compile("`([^`]+)`")
_STYLE = """
body { max-width: 56rem; } h1 { margin-bottom: .2rem; } .sub { color: var(--dim); margin-top: 0; }
article { border: 1px solid var(--line); border-left: 5px solid; border-radius: 4px; padding: .7rem 1rem;
  margin: 1rem 0; break-inside: avoid; }
article h2 { margin: 0; font-size: 1.05rem; overflow-wrap: anywhere; } .sub, .remark { overflow-wrap: anywhere; }
.facts { color: var(--dim); margin: .15rem 0 .6rem; } .facts b { font-weight: 600; }
article ul { margin: .3rem 0; padding-left: 1.2rem; } li { overflow-wrap: anywhere; }
.advice { background: #8881; border-radius: 4px; padding: .5rem .7rem; margin: .6rem 0; overflow-wrap: anywhere; }
.place { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .1rem .8rem; margin: .4rem 0; }
.place dt { color: var(--dim); } .place dd { margin: 0; overflow-wrap: anywhere; }
code, pre { font: 12.5px/1.5 ui-monospace, monospace; } pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.place pre { margin: .2rem 0; padding: .2rem .5rem; border-radius: 3px; }
figure { margin: .8rem 0; max-width: 40rem; break-inside: avoid; }
figcaption { overflow-wrap: anywhere; color: var(--dim); font-size: 12px; }
.key { margin-right: 1rem; } .key i { display: inline-block; width: .7rem; height: .7rem;
  border-radius: 2px; margin-right: .3rem; vertical-align: -1px; print-color-adjust: exact; }
.remark { border-left: 4px solid #b87503; padding: .3rem .8rem; } td:first-child { width: 14rem; }
@media print { :root { color-scheme: light; } body { margin: 0; font-size: 11px; }
  details::details-content { content-visibility: visible; block-size: auto; } summary { list-style: none; } }
"""


def write_diagnosis_page(path: Path, report: Report) -> None:
    """Write the page of a diagnosis.

    Parameters
    ----------
    path : Path
        The HTML file; an existing one is replaced.
    report : Report

    Raises
    ------
    InputError
        The file cannot be written.
    """
    key = "title" if report.diagnosis.findings else "title-none" if report.diagnosis.steps else "title-unjudged"
    title = text(key, report.language)
    language = LANGUAGES[report.language]
    write_page(path, title, _body(report), language={"zh": "zh-CN"}.get(language, language), style=_STYLE)


def _body(report: Report) -> Iterable[str]:
    diagnosis, language = report.diagnosis, report.language
    counts = [counted("findings", len(diagnosis.findings), language)] if diagnosis.findings else []
    parts = [*report.setup.get("command", ()), *counts, counted(report.unit, diagnosis.steps, language)]
    yield f'<p class="sub">{_text(" · ".join(parts))}</p>'
    if report.ending.failure:
        yield f"<p class=remark>{text('failed', language)}</p><pre>{html.escape(lines(report.ending.failure))}</pre>"
    if not diagnosis.steps:
        yield f"<p class=remark>{text('none', language)}</p>"
    for remark in report.remarks:
        yield f"<p class=remark>{_text(remark)}</p>"
    if diagnosis.steps and not diagnosis.findings:
        yield f"<p>{text('nothing-more', language)}</p>"
    for finding in diagnosis.findings:
        yield _finding(report, finding)
    if report.losses:
        since = min((finding.step for finding in diagnosis.findings), default=0)
        yield f"<h2>{text('loss', language)}</h2>" + _figure(report, report.losses, since, height=160)
    if report.probes:
        yield f"<h2>{text('probes', language)}</h2>"
        sentences = probe_sentences(report.probes, language)
        yield table(("", ""), [(outcome_text(outcome, language), one_line(words)) for outcome, words in sentences])
    yield f"<h2>{text('setup', language)}</h2>"
    rows = [(text(key, language), "; ".join(map(one_line, texts))) for key, texts in report.setup.items()]
    yield table(("", ""), rows)
    yield from _rules(report)


def _finding(report: Report, finding: FindingRecord) -> str:
    language = report.language
    words = finding.chinese if language else finding
    since = [text("since", language, step=finding.step)] if finding.step > 1 else []
    meaning = html.escape(text(f"meaning-{finding.certainty}", language))
    colour = _CERTAINTIES[finding.certainty]
    certainty = f'<b title="{meaning}" style="color:{colour}">{text(finding.certainty, language)}</b>'
    facts = " · ".join([certainty, *since, f"<code>{_text(finding.rule)}</code>"])
    parts = [f"<h2>{_text(words.title)}</h2><p class=facts>{facts}</p>", _location(report, finding)]
    parts.append(_list(words.evidence))
    if words.advice:
        parts.append(f"<p class=advice><b>{text('advice', language)}:</b> {_text(words.advice)}</p>")
    if words.explains:
        parts.append(f"<p class=facts>{text('explains-title', language)}</p>" + _list(words.explains))
    curves = report.curves_of(finding)
    if any(len(curve.steps) > 1 for curve in curves):
        parts.append(_figure(report, curves, finding.step, height=110))
    return f'<article style="border-left-color:{colour}">{"".join(parts)}</article>'


def _list(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(sentence)}</li>' for sentence in sentences)}</ul>" if sentences else ""


def _location(report: Report, finding: FindingRecord) -> str:
    """Return where a finding is, with the text of the line if its file is here."""
    locations = {}
    position = report.position(finding)
    if position is not None:
        locations["line"] = f"<code>{_text(f'{position.file}:{position.line}')}</code>"
        code = report.code_at(position)
        locations["line"] += f"<pre>{html.escape(one_line(code, _MOST_CODE))}</pre>" if code else ""
    for key in _KINDS:
        names = names_in(finding.where.get(key, ""))
        if names:
            locations[key] = f"<code>{_text(listed(names, _MOST_NAMES))}</code>"
    rows = [f"<dt>{text(f'where-{key}', report.language)}</dt><dd>{shown}</dd>" for key, shown in locations.items()]
    return f'<dl class="place">{"".join(rows)}</dl>' if rows else ""


def _rules(report: Report) -> Iterable[str]:
    from tensight.diagnosis.findings import CATEGORIES

    diagnosis, language = report.diagnosis, report.language
    if diagnosis.undecided:
        yield f"<h2>{text('undecided-title', language)}</h2>"
        rows = [(one_line(why), one_line(", ".join(rules))) for why, rules in report.undecided.items()]
        yield table((text("why", language), text("rules", language)), rows)
    if diagnosis.passed:
        titles = (text("rule", language), text("finds", language))
        # What a rule finds is declared in English only.
        rows = [
            (rule, one_line(CATEGORIES[report.rules[rule].category][1] if language else report.rules[rule].summary))
            for rule in diagnosis.passed
        ]
        yield folded(counted("passed-title", len(rows), language), table(titles, rows))


def _figure(report: Report, curves: Sequence[Curve], since: int, *, height: int) -> str:
    """Return curves of one fact over the steps, with a mark at the step since when something is so."""
    language = report.language
    first, last = min(curve.steps[0] for curve in curves), max(curve.steps[-1] for curve in curves)
    finite = [value for curve in curves for value in curve.values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    is_logarithmic = low > 0 and high / low >= _LOGARITHMIC_FROM
    fact = text(curves[0].fact, language) if curves[0].fact in WORDS else curves[0].fact
    lower, upper = (math.log10(low), math.log10(high)) if is_logarithmic else _range(low, high)
    picture = Picture(
        one_line(f"{fact}: {', '.join(name for curve in curves for name in curve.names)}"),
        lower,
        upper,
        is_logarithmic=is_logarithmic,
        width=_WIDTH,
        height=height,
    )
    for value, words in _scale(lower, upper, is_logarithmic=is_logarithmic):
        picture.ruler(value, words)
    span = max(last - first, 1)
    if first < since <= last:
        picture.mark((since - first) / span, "#888")
    notes = [text("since-mark", language, step=f"{since:,}")] if first < since <= last else []
    has_gaps = is_unbounded = False
    for curve, colour in zip(curves, _COLOURS, strict=False):
        points = [((step - first) / span, value) for step, value in zip(curve.steps, curve.values, strict=True)]
        for begin, end in _stretches(curve.steps):
            picture.line(points[begin:end], colour)
            if begin:
                has_gaps = True
                picture.line(points[begin - 1 : begin + 1], colour, dashed=True)
            if end - begin == 1:
                picture.point(*points[begin], f"{curve.steps[begin]:,}: {points[begin][1]:.5g}", colour)
        for position, value in points:
            if not math.isfinite(value):
                is_unbounded = True
                picture.point(position, upper if not is_logarithmic else high, f"{value}", RED, 3)
    picture.below(0.0, text("step", language, step=f"{first:,}"), "start")
    if last > first:
        picture.below(1.0, f"{last:,}", "end")
    notes += [text("gaps", language)] if has_gaps else []
    notes += [text("not-finite", language)] if is_unbounded else []
    keys = []
    for curve, colour in zip(curves, _COLOURS, strict=False):
        names = listed([one_line(name, _MOST_NAME) for name in curve.names])
        keys.append(f'<span class="key"><i style="background:{colour}"></i>{_text(names)}</span>')
    caption = f"{fact} &nbsp; {''.join(keys)}{' · '.join(notes)}"
    return f"<figure>{picture.html()}<figcaption>{caption}</figcaption></figure>"


def _stretches(steps: Sequence[int]) -> list[tuple[int, int]]:
    """Return the ranges of steps without a gap: one that is several times the usual distance of two steps."""
    distances = sorted(later - earlier for earlier, later in itertools.pairwise(steps))
    usual = distances[len(distances) // 2] if distances else 1
    begins = [0, *(at for at in range(1, len(steps)) if steps[at] - steps[at - 1] > 4 * max(usual, 1))]
    return list(zip(begins, [*begins[1:], len(steps)], strict=True))


def _range(low: float, high: float) -> tuple[float, float]:
    """Return the numbers at the edges: from 0 on where that is not far below, with room around a line that is flat."""
    if low == high:
        return (0.0, 2 * low) if low > 0 else (low * 2, 0.0) if low < 0 else (-1.0, 1.0)
    return (0.0 if 0 < low < 0.5 * high else low), high


def _scale(lower: float, upper: float, *, is_logarithmic: bool) -> Iterable[tuple[float, str]]:
    """Yield numbers at which lines are drawn, with their texts."""
    for share in (0.0, 0.5, 1.0):
        value = lower + share * (upper - lower)
        yield value, f"{10**value if is_logarithmic else value:.3g}"


def _text(words: str) -> str:
    """Return a text, with code where it is between backticks."""
    return _CODE.sub(r"<code>\1</code>", html.escape(one_line(words)))
