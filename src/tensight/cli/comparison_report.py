"""A comparison of two runs as one HTML file: the verdict, a picture of the differences, and all tables."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensight.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

_WIDTH, _HEIGHT, _MARGIN = 960, 220, 46
_LOWEST, _HIGHEST = -9, 1
"""Powers of ten at the edges of the picture."""

_MOST_POINTS = 4_000
_COLOURS = {"same": "#2a8a4a", "different": "#c9372c", "not comparable": "#a86400"}
_PHASES = {"forward": "#3b76c4", "backward": "#8a5cc2", "update": "#2a8a4a"}

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


def write_report(path: Path, data: Mapping[str, Any]) -> None:
    """Write the report.

    Parameters
    ----------
    path : Path
        Of the HTML file; one that is there is replaced.
    data : mapping
        As ``tensight compare runs --json`` prints.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    try:
        path.write_text(report(data), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: the report cannot be written: {error.strerror}") from None


def report(data: Mapping[str, Any]) -> str:
    """Return the report as HTML that needs nothing from elsewhere."""
    body = [
        "<h1>Two runs compared</h1>",
        _table(("", "run"), [("A", data["a"]), ("B", data["b"])]),
        *(part for result in data["ranks"] for part in _rank(result, several=len(data["ranks"]) > 1)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Two runs compared</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _rank(result: Mapping[str, Any], *, several: bool) -> Iterable[str]:
    if several:
        yield f"<h2>Rank {result['rank']}</h2>"
    colour = _COLOURS.get(result["verdict"], "#888")
    yield f'<p class="verdict" style="border-color:{colour}">{html.escape(result["sentence"])}</p>'
    if result["notes"]:
        yield "<ul>" + "".join(f"<li>{html.escape(note)}</li>" for note in result["notes"]) + "</ul>"
    if result["first"] is not None:
        yield from _operator(result["first"])
    elif result["tensors"]:
        yield _table(
            ("A", "B", "matched by", "relative difference"),
            [(one["name"], one["name_b"], one["rule"], _relative(one["difference"])) for one in result["tensors"]],
        )
    if result["compared"]:
        step = f"step {result['step']}" if result["step"] is not None else "the last step"
        yield f"<h2>Relative difference of outputs in {step}, in order of execution</h2>"
        yield _picture(result["compared"], None if result["first"] is None else result["first"]["name"])
    yield from _proof(result)
    if result["compared"]:
        yield f"<details><summary>All {len(result['compared']):,} compared operators</summary>"
        yield _operators(result)
        yield "</details>"


def _operator(first: Mapping[str, Any]) -> Iterable[str]:
    source = first["source"]
    if source is not None:
        where = html.escape(f"{source['file']}:{source['line']}")
        yield f"<p class=dim>{where}</p><pre>{html.escape(source['code'].strip())}</pre>"
    rows = [("input", one["name"], _relative(one), _detail(one)) for one in first["inputs"]]
    rows += [(f"output {one['slot']}", one["name"], _relative(one), _detail(one)) for one in first["outputs"]]
    yield _table(("", "tensor", "relative difference", ""), rows, numbers=(2,))


def _proof(result: Mapping[str, Any]) -> Iterable[str]:
    proof = result["proof"]
    yield "<h2>What this rests on</h2>"
    rows: list[tuple[object, ...]] = [
        ("Inputs of the network that agree", f"{proof['inputs_that_agree']} of {proof['inputs']}"),
        ("Weights that agree before the first step", f"{proof['weights_that_agree']} of {proof['weights']}"),
    ]
    rows += [(f"Operators matched by {rule}", f"{amount:,}") for rule, amount in result["matched"].items()]
    rows += [(f"Operators only in {run}", f"{len(result[key]):,}") for run, key in (("A", "only_a"), ("B", "only_b"))]
    yield _table(("", ""), rows, numbers=(1,))
    for run, key in (("A", "only_a"), ("B", "only_b"), ("A", "parameters_only_a"), ("B", "parameters_only_b")):
        if result[key]:
            what = "Parameters" if key.startswith("parameters") else "Operators"
            names = "".join(f"<li>{html.escape(name)}</li>" for name in result[key])
            yield f"<details><summary>{what} only in {run} ({len(result[key]):,})</summary><ul>{names}</ul></details>"


def _operators(result: Mapping[str, Any]) -> str:
    first = None if result["first"] is None else result["first"]["name"]
    rows = []
    for one in result["compared"]:
        other = "" if one["name_b"] == one["name"] else one["name_b"]
        worst = one["outputs"][0] if one["outputs"] else None
        row = (one["phase"], one["name"], other, one["rule"], _relative(worst), _number(one["added"]))
        rows.append((row, one["name"] == first))
    return _table(
        ("phase", "A", "B, if another name", "matched by", "difference", "added"),
        [row for row, _ in rows],
        numbers=(4, 5),
        marked={place for place, (_, is_first) in enumerate(rows) if is_first},
    )


def _picture(compared: Sequence[Mapping[str, Any]], first: str | None) -> str:
    """Return a picture: each operator a point, from left to right as they ran, its height the relative difference."""
    every = max(1, math.ceil(len(compared) / _MOST_POINTS))
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Relative difference of each operator">']
    for power in range(_LOWEST, _HIGHEST + 1, 2):
        y = _height(power)
        parts.append(f'<line x1="{_MARGIN}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8883"/>')
        label = f"1e{power}" if power > _LOWEST else f"≤ 1e{power}"
        parts.append(f'<text x="0" y="{y + 4:.1f}">{label}</text>')
    for place, one in enumerate(compared):
        is_first = one["name"] == first
        if (place % every and not is_first) or not one["outputs"]:
            continue
        x = _MARGIN + (place + 0.5) / len(compared) * (_WIDTH - _MARGIN)
        y = _height(_power(one["outputs"][0]["relative"]))
        if is_first:
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT}" stroke="#c9372c"/>')
        title = html.escape(f"{one['name']}: {_relative(one['outputs'][0])}")
        colour = "#c9372c" if is_first else _PHASES.get(one["phase"], "#888")
        radius = 4 if is_first else 2
        point = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"'
        parts.append(f"<circle {point}><title>{title}</title></circle>")
    for place, (phase, colour) in enumerate(_PHASES.items()):
        parts.append(f'<circle cx="{_MARGIN + 10 + 90 * place}" cy="8" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{_MARGIN + 18 + 90 * place}" y="12">{phase}</text>')
    return "".join(parts) + "</svg>"


def _power(relative: float) -> float:
    if relative != relative or relative == math.inf:
        return _HIGHEST
    return min(max(math.log10(relative), _LOWEST), _HIGHEST) if relative > 0 else _LOWEST


def _height(power: float) -> float:
    return 20 + (_HEIGHT - 30) * (_HIGHEST - power) / (_HIGHEST - _LOWEST)


def _relative(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "not known"
    if found["bit_equal"]:
        return "bit-equal"
    relative = found["relative"]
    if relative != relative:
        return "other shape"
    return ("" if found["from_values"] else "at least ") + _number(relative)


def _number(value: float) -> str:
    if value == math.inf:
        return "NaN or Inf in one only"
    return "0" if value == 0 else f"{value:.2g}"


def _detail(found: Mapping[str, Any]) -> str:
    shapes = " / ".join("×".join(map(str, shape)) or "scalar" for shape in dict.fromkeys(map(tuple, found["shapes"])))
    text = f"{' / '.join(dict.fromkeys(found['dtypes']))} {shapes}"
    if found["from_values"] and not found["bit_equal"] and found["relative"] == found["relative"]:
        text += f", largest {_number(found['max_absolute'])}, cosine {found['cosine']:.6f}"
    return text


def _table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Sequence[int] = (),
    marked: Iterable[int] = (),
) -> str:
    chosen = set(marked)

    def cell(tag: str, place: int, text: object) -> str:
        kind = "number" if place in numbers else "name"
        return f'<{tag} class="{kind}">{html.escape(str(text))}</{tag}>'

    head = "".join(cell("th", place, text) for place, text in enumerate(header))
    lines = [
        f"<tr{' class=first' if number in chosen else ''}>"
        + "".join(cell("td", place, text) for place, text in enumerate(row))
        + "</tr>"
        for number, row in enumerate(rows)
    ]
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if any(header) else ''}<tbody>{''.join(lines)}</tbody></table>"
