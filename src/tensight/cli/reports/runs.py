"""A comparison of two runs: the verdict, a picture of the differences, and all tables."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tensight.cli.reports.parts import RED, Picture, bullets, folded, number, table, verdict

TITLE = "Two runs compared"

_LOWEST, _HIGHEST = -9, 1
"""Powers of ten at the edges of the picture."""

_MOST_POINTS = 4_000
_PHASES = {"forward": "#3b76c4", "backward": "#8a5cc2", "update": "#2a8a4a"}


def body(data: Mapping[str, Any]) -> Iterable[str]:
    """Yield the parts of the report.

    Parameters
    ----------
    data : mapping
        As ``tensight compare runs --json`` prints.
    """
    yield table(("", "run"), [("A", data["a"]), ("B", data["b"])])
    for result in data["ranks"]:
        yield from _rank(result, several=len(data["ranks"]) > 1)


def _rank(result: Mapping[str, Any], *, several: bool) -> Iterable[str]:
    if several:
        yield f"<h2>Rank {result['rank']}</h2>"
    yield verdict(result["verdict"], result["sentence"])
    yield bullets(result["notes"])
    if result["first"] is not None:
        yield from _operator(result["first"])
    elif result["tensors"]:
        yield table(
            ("A", "B", "matched by", "relative difference"),
            [(one["name"], one["name_b"], one["rule"], _relative(one["difference"])) for one in result["tensors"]],
        )
    if result["compared"]:
        step = f"step {result['step']}" if result["step"] is not None else "the last step"
        yield f"<h2>Relative difference of outputs in {step}, in order of execution</h2>"
        yield _picture(result["compared"], None if result["first"] is None else result["first"]["name"])
    yield from _proof(result)
    if result["compared"]:
        yield folded(f"All {len(result['compared']):,} compared operators", _operators(result))


def _operator(first: Mapping[str, Any]) -> Iterable[str]:
    source = first["source"]
    if source is not None:
        where = html.escape(f"{source['file']}:{source['line']}")
        yield f"<p class=dim>{where}</p><pre>{html.escape(source['code'].strip())}</pre>"
    rows = [("input", one["name"], _relative(one), _detail(one)) for one in first["inputs"]]
    rows += [(f"output {one['slot']}", one["name"], _relative(one), _detail(one)) for one in first["outputs"]]
    yield table(("", "tensor", "relative difference", ""), rows, numbers=(2,))


def _proof(result: Mapping[str, Any]) -> Iterable[str]:
    proof = result["proof"]
    yield "<h2>What this rests on</h2>"
    rows: list[tuple[object, ...]] = [
        ("Inputs of the network that agree", f"{proof['inputs_that_agree']} of {proof['inputs']}"),
        ("Weights that agree before the first step", f"{proof['weights_that_agree']} of {proof['weights']}"),
    ]
    rows += [(f"Operators matched by {rule}", f"{amount:,}") for rule, amount in result["matched"].items()]
    rows += [(f"Operators only in {run}", f"{len(result[key]):,}") for run, key in (("A", "only_a"), ("B", "only_b"))]
    yield table(("", ""), rows, numbers=(1,))
    for run, key in (("A", "only_a"), ("B", "only_b"), ("A", "parameters_only_a"), ("B", "parameters_only_b")):
        if result[key]:
            what = "Parameters" if key.startswith("parameters") else "Operators"
            yield folded(f"{what} only in {run} ({len(result[key]):,})", bullets(result[key]))


def _operators(result: Mapping[str, Any]) -> str:
    first = None if result["first"] is None else result["first"]["name"]
    rows = []
    for one in result["compared"]:
        other = "" if one["name_b"] == one["name"] else one["name_b"]
        worst = one["outputs"][0] if one["outputs"] else None
        row = (one["phase"], one["name"], other, one["rule"], _relative(worst), _error(one["added"]))
        rows.append((row, one["name"] == first))
    return table(
        ("phase", "A", "B, if another name", "matched by", "difference", "added"),
        [row for row, _ in rows],
        numbers=(4, 5),
        marked={number for number, (_, is_first) in enumerate(rows) if is_first},
    )


def _picture(compared: Sequence[Mapping[str, Any]], first: str | None) -> str:
    """Return a picture: each operator a point, from left to right as they ran, its height the relative difference."""
    every = max(1, math.ceil(len(compared) / _MOST_POINTS))
    picture = Picture("Relative difference of each operator", _LOWEST, _HIGHEST, is_logarithmic=True)
    for power in range(_LOWEST, _HIGHEST + 1, 2):
        picture.ruler(power, f"1e{power}" if power > _LOWEST else f"≤ 1e{power}")
    for at, one in enumerate(compared):
        is_first = one["name"] == first
        if (at % every and not is_first) or not one["outputs"]:
            continue
        position = (at + 0.5) / len(compared)
        if is_first:
            picture.mark(position)
        worst = one["outputs"][0]
        colour = RED if is_first else _PHASES.get(one["phase"], "#888")
        title = f"{one['name']}: {_relative(worst)}"
        picture.point(position, _value(worst), title, colour, 4 if is_first else 2)
    picture.legend(_PHASES.items())
    return picture.html()


def _relative(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "not known"
    if found["bit_equal"]:
        return "bit-equal"
    if not found["is_comparable"]:
        return "other shape"
    return ("" if found["from_values"] else "at least ") + _error(_value(found))


def _value(found: Mapping[str, Any]) -> float:
    """Return a relative difference; infinite where only one side has NaN or Inf, NaN where the shapes differ."""
    if not found["is_comparable"]:
        return math.nan
    relative: float | None = found["relative"]
    return math.inf if relative is None else relative


def _error(value: float | None) -> str:
    if value is None:
        return "not known"
    return "NaN or Inf in one only" if value == math.inf else number(value)


def _detail(found: Mapping[str, Any]) -> str:
    shapes = " / ".join("×".join(map(str, shape)) or "scalar" for shape in dict.fromkeys(map(tuple, found["shapes"])))
    text = f"{' / '.join(dict.fromkeys(found['dtypes']))} {shapes}"
    if found["from_values"] and not found["bit_equal"] and found["is_comparable"]:
        cosine = "" if found["cosine"] is None else f", cosine {found['cosine']:.6f}"
        text += f", largest {_error(found['max_absolute'])}{cosine}"
    return text
