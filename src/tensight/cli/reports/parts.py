"""Parts of reports: the page, the verdict, tables, pictures on a linear or logarithmic scale."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tensight.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

RED = "#c9372c"
_COLOURS = {"same": "#2a8a4a", "different": RED, "not comparable": "#a86400"}

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #888; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1rem; margin-top: 2rem; }
.verdict { border-left: 4px solid; padding: .4rem .8rem; font-weight: 600; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; font-weight: 600; } td, th { border-bottom: 1px solid var(--line); padding: .2rem .5rem; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { overflow-wrap: anywhere; } tr.first { font-weight: 700; } .dim { color: var(--dim); }
pre { overflow-x: auto; border: 1px solid var(--line); padding: .5rem; }
svg { width: 100%; height: auto; } svg text { fill: currentColor; font-size: 11px; }
summary { cursor: pointer; font-weight: 600; margin-top: 1rem; }
"""


_DASHES = ' stroke-dasharray="6 4"'


class Report(Protocol):
    """A module that creates the report of one kind of comparison."""

    TITLE: str

    def body(self, data: Mapping[str, Any]) -> Iterable[str]:
        """Yield the HTML of the report's parts; `data` is the JSON data of the command."""


def write_report(path: Path, report: Report, data: Mapping[str, Any]) -> None:
    """Write a report.

    Parameters
    ----------
    path : Path
        The HTML file; an existing one is replaced.
    report : Report
    data : mapping
        The JSON data of the command.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    write_page(path, report.TITLE, report.body(data))


def write_page(path: Path, title: str, parts: Iterable[str], *, language: str = "en", style: str = "") -> None:
    """Write a page that needs no other file, and runs nothing.

    Parameters
    ----------
    path : Path
        The HTML file; an existing one is replaced.
    title : str
    parts : iterable of str
        HTML.
    language : str
        Of the page, as ``en``.
    style : str
        Rules of CSS beside those of all reports.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    heading = html.escape(title)
    page = (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{heading}</title><style>{_STYLE}{style}</style></head>\n<body>\n<h1>{heading}</h1>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )
    try:
        path.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path}: the report cannot be written: {error.strerror}") from None


def verdict(kind: str, sentence: str) -> str:
    """Return the verdict, coloured by its kind: "same", "different" or "not comparable"."""
    return f'<p class="verdict" style="border-color:{_COLOURS.get(kind, "#888")}">{html.escape(sentence)}</p>'


def bullets(texts: Iterable[str]) -> str:
    """Return a list; empty if there are no texts."""
    items = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def folded(title: str, content: str) -> str:
    """Return content that is shown when its title is clicked."""
    return f"<details><summary>{html.escape(title)}</summary>{content}</details>"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Sequence[int] = (),
    marked: Iterable[int] = (),
) -> str:
    """Return a table.

    Parameters
    ----------
    header : sequence of str
        Left out if all are empty.
    rows : iterable of sequence
    numbers : sequence of int
        Columns that contain numbers.
    marked : iterable of int
        Highlighted rows.
    """
    chosen = set(marked)

    def cell(tag: str, column: int, text: object) -> str:
        kind = "number" if column in numbers else "name"
        return f'<{tag} class="{kind}">{html.escape(str(text))}</{tag}>'

    head = "".join(cell("th", column, text) for column, text in enumerate(header))
    lines = [
        f"<tr{' class=first' if number in chosen else ''}>"
        + "".join(cell("td", column, text) for column, text in enumerate(row))
        + "</tr>"
        for number, row in enumerate(rows)
    ]
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if any(header) else ''}<tbody>{''.join(lines)}</tbody></table>"


def number(value: float) -> str:
    """Return a number with two digits."""
    return "0" if value == 0 else f"{value:.2g}"


class Picture:
    """A picture with numbers on a linear or logarithmic vertical axis, in order from left to right.

    Parameters
    ----------
    label : str
        Label for screen readers.
    lowest, highest : float
        Numbers at the lower and upper edge; powers of ten on a logarithmic scale.
    is_logarithmic : bool
    width, height : int
        Size in the units of its texts, which are 11 high.
    """

    _MARGIN = 56

    def __init__(
        self,
        label: str,
        lowest: float,
        highest: float,
        *,
        is_logarithmic: bool,
        width: int = 960,
        height: int = 220,
    ) -> None:
        self._label, self._width, self._picture_height, self._below_height = label, width, height, 0
        self._lowest, self._highest, self._is_logarithmic = lowest, highest, is_logarithmic
        self._parts: list[str] = []

    def ruler(self, value: float, text: str) -> None:
        """Draw a labelled horizontal line at a number (a power of ten on a logarithmic scale)."""
        y = self._at(value)
        self._parts.append(f'<line x1="{self._MARGIN}" x2="{self._width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8883"/>')
        self._parts.append(f'<text x="0" y="{y + 4:.1f}">{html.escape(text)}</text>')

    def mark(self, position: float, colour: str = RED, *, dashed: bool = False) -> None:
        """Draw a vertical line.

        Parameters
        ----------
        position : float
            From 0 at the left to 1 at the right.
        colour : str
        dashed : bool
        """
        x = self._across(position)
        dashes = _DASHES if dashed else ""
        self._parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{self._picture_height}" stroke="{colour}"{dashes}/>'
        )

    def below(self, position: float, words: str, anchor: str = "middle") -> None:
        """Write a text below the lower edge.

        Parameters
        ----------
        position : float
            From 0 at the left to 1 at the right.
        words : str
        anchor : {"start", "middle", "end"}
            What of the text is at the position.
        """
        self._below_height = 16
        at = f'x="{self._across(position):.1f}" y="{self._picture_height + 12}" text-anchor="{anchor}"'
        self._parts.append(f"<text {at}>{html.escape(words)}</text>")

    def point(self, position: float, value: float, title: str, colour: str, radius: int = 2) -> None:
        """Draw a point whose title is displayed at the pointer."""
        where = f'cx="{self._across(position):.1f}" cy="{self._height(value):.1f}"'
        self._parts.append(f'<circle {where} r="{radius}" fill="{colour}"><title>{html.escape(title)}</title></circle>')

    def line(self, points: Iterable[tuple[float, float]], colour: str, *, dashed: bool = False) -> None:
        """Draw a line through points of position and number; non-finite numbers are gaps."""
        strokes: list[list[str]] = [[]]
        for position, value in points:
            if math.isfinite(value):
                strokes[-1].append(f"{self._across(position):.1f},{self._height(value):.1f}")
            elif strokes[-1]:
                strokes.append([])
        dashes = _DASHES if dashed else ""
        self._parts += [
            f'<polyline points="{" ".join(stroke)}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>'
            for stroke in strokes
            if stroke
        ]

    def legend(self, colours: Iterable[tuple[str, str]]) -> None:
        """Draw a legend of texts and colours."""
        for index, (text, colour) in enumerate(colours):
            x = self._MARGIN + 10 + 90 * index
            self._parts.append(f'<circle cx="{x}" cy="8" r="4" fill="{colour}"/>')
            self._parts.append(f'<text x="{x + 8}" y="12">{html.escape(text)}</text>')

    def html(self) -> str:
        """Return the picture as SVG."""
        size = f'viewBox="0 0 {self._width} {self._picture_height + self._below_height}"'
        label = html.escape(self._label)
        return f'<svg {size} role="img" aria-label="{label}">{"".join(self._parts)}</svg>'

    def _across(self, position: float) -> float:
        return self._MARGIN + position * (self._width - self._MARGIN)

    def _height(self, value: float) -> float:
        if self._is_logarithmic:
            value = self._highest if math.isnan(value) else math.log10(value) if value > 0 else self._lowest
        return self._at(min(max(value, self._lowest), self._highest))

    def _at(self, value: float) -> float:
        span = self._highest - self._lowest or 1.0
        return 20 + (self._picture_height - 30) * (self._highest - value) / span
