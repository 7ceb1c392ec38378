"""The report of a comparison of two runs: the verdict, a picture of the differences, and all tables."""

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
            [
                (tensor["name"], tensor["name_b"], tensor["rule"], _relative(tensor["difference"]))
                for tensor in result["tensors"]
            ],
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
    rows = [("input", tensor["name"], _relative(tensor), _detail(tensor)) for tensor in first["inputs"]]
    rows += [
        (f"output {tensor['slot']}", tensor["name"], _relative(tensor), _detail(tensor)) for tensor in first["outputs"]
    ]
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
    for operator in result["compared"]:
        other = "" if operator["name_b"] == operator["name"] else operator["name_b"]
        worst = operator["outputs"][0] if operator["outputs"] else None
        row = (
            operator["phase"],
            operator["name"],
            other,
            operator["rule"],
            _relative(worst),
            _error(operator["added"]),
        )
        rows.append((row, operator["name"] == first))
    return table(
        ("phase", "A", "B, if another name", "matched by", "difference", "added"),
        [row for row, _ in rows],
        numbers=(4, 5),
        marked={number for number, (_, is_first) in enumerate(rows) if is_first},
    )


def _picture(compared: Sequence[Mapping[str, Any]], first: str | None) -> str:
    """Return a picture with a point at the relative difference of each operator, in the order of execution."""
    every = max(1, math.ceil(len(compared) / _MOST_POINTS))
    picture = Picture("Relative difference of each operator", _LOWEST, _HIGHEST, is_logarithmic=True)
    for power in range(_LOWEST, _HIGHEST + 1, 2):
        picture.ruler(power, f"1e{power}" if power > _LOWEST else f"≤ 1e{power}")
    for at, operator in enumerate(compared):
        is_first = operator["name"] == first
        if (at % every and not is_first) or not operator["outputs"]:
            continue
        position = (at + 0.5) / len(compared)
        if is_first:
            picture.mark(position)
        worst = operator["outputs"][0]
        colour = RED if is_first else _PHASES.get(operator["phase"], "#888")
        title = f"{operator['name']}: {_relative(worst)}"
        picture.point(position, _value(worst), title, colour, 4 if is_first else 2)
    picture.legend(_PHASES.items())
    return picture.html()


def _relative(difference: Mapping[str, Any] | None) -> str:
    if difference is None:
        return "not known"
    if difference["bit_equal"]:
        return "bit-equal"
    if not difference["is_comparable"]:
        return "other shape"
    return ("" if difference["from_values"] else "at least ") + _error(_value(difference))


def _value(difference: Mapping[str, Any]) -> float:
    """Return a relative difference; infinite if only one side has NaN or Inf, NaN if the shapes differ."""
    if not difference["is_comparable"]:
        return math.nan
    relative: float | None = difference["relative"]
    return math.inf if relative is None else relative


def _error(value: float | None) -> str:
    if value is None:
        return "not known"
    return "NaN or Inf in one only" if value == math.inf else number(value)


def _detail(difference: Mapping[str, Any]) -> str:
    shapes = " / ".join(
        "×".join(map(str, shape)) or "scalar" for shape in dict.fromkeys(map(tuple, difference["shapes"]))
    )
    text = f"{' / '.join(dict.fromkeys(difference['dtypes']))} {shapes}"
    if difference["from_values"] and not difference["bit_equal"] and difference["is_comparable"]:
        cosine = "" if difference["cosine"] is None else f", cosine {difference['cosine']:.6f}"
        text += f", largest {_error(difference['max_absolute'])}{cosine}"
    return text
