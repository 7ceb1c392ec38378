"""The report of a comparison of two checkpoints: findings, a picture of the changes, and all pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tensight.cli.reports.parts import RED, Picture, bullets, folded, number, table, verdict

TITLE = "Two checkpoints compared"

_LOWEST, _HIGHEST = -9, 1
"""Powers of ten at the edges of the picture."""

_MOST_POINTS = 4_000
_MOST_ROWS = 5_000
_MOVED = "#3b76c4"


def body(data: Mapping[str, Any]) -> Iterable[str]:
    """Yield the parts of the report.

    Parameters
    ----------
    data : mapping
        As ``tensight compare checkpoints --json`` prints.
    """
    sides = [(side.upper(), data[side]) for side in ("a", "b")]
    rows = [
        (name, checkpoint["path"], checkpoint["format"], f"{checkpoint['tensors']:,}", f"{checkpoint['size_bytes']:,}")
        for name, checkpoint in sides
    ]
    yield table(("", "checkpoint", "format", "tensors", "bytes"), rows, numbers=(3, 4))
    yield verdict(data["verdict"], f"{data['verdict']}: {data['summary']}")
    for is_note in (False, True):
        yield bullets(finding["text"] for finding in data["findings"] if finding["note"] is is_note)
    differing = [pair for pair in data["pairs"] if "relative_norm" in pair and not pair["same"]]
    if differing:
        yield "<h2>Norm of the change against the norm of the tensor, in the order of the file</h2>" + _picture(data)
        worst = sorted(range(len(differing)), key=lambda at: -_size(differing[at]))
        yield _pairs(f"{len(differing):,} tensors that differ", [differing[at] for at in worst])
    yield _pairs(f"{len(data['pairs']):,} pairs", data["pairs"])
    for side in ("a", "b"):
        alone = [(tensor["name"], _shape(tensor["shape"]), tensor["dtype"]) for tensor in data[f"only_{side}"]]
        if alone:
            yield folded(f"{len(alone):,} only in {side.upper()}", table(("tensor", "shape", "dtype"), alone))
    if data["values"]:
        values = [(value["name"], *(_brief(value, side) for side in ("a", "b"))) for value in data["values"]]
        yield folded(f"{len(values):,} other values that differ", table(("value", "A", "B"), values))


def _pairs(title: str, pairs: list[Mapping[str, Any]]) -> str:
    more = f", of which {_MOST_ROWS:,} are listed" if len(pairs) > _MOST_ROWS else ""
    rows = []
    for pair in pairs[:_MOST_ROWS]:
        other = "" if pair["b"] == pair["a"] else pair["b"] + (" (transposed)" if pair["transposed"] else "")
        if "relative_norm" not in pair:
            numbers: tuple[str, ...] = ("another shape", "", "")
        elif pair["same"]:
            numbers = ("bit-equal", "", "")
        else:
            share = f"{pair['changed'] / pair['count']:.3g}" if pair["count"] else "–"
            numbers = (_change(pair), number(pair["max_abs"]), share)
        rows.append((pair["a"], other, pair["rule"], _shape(pair["shape_a"]), *numbers))
    header = ("A", "B, if another name", "paired by", "shape", "norm of change", "largest", "share of elements")
    return folded(title + more, table(header, rows, numbers=(4, 5, 6)))


def _picture(data: Mapping[str, Any]) -> str:
    pairs = data["pairs"]
    every = max(1, math.ceil(len(pairs) / _MOST_POINTS))
    picture = Picture("Relative change of each tensor", _LOWEST, _HIGHEST, is_logarithmic=True)
    for power in range(_LOWEST, _HIGHEST + 1, 2):
        picture.ruler(power, f"1e{power}" if power > _LOWEST else f"≤ 1e{power}")
    for at, pair in enumerate(pairs):
        if at % every == 0 and "relative_norm" in pair:
            colour = _MOVED if pair["within_tolerance"] else RED
            title = f"{pair['a']}: {'bit-equal' if pair['same'] else _change(pair)}"
            picture.point((at + 0.5) / len(pairs), 0.0 if pair["same"] else _size(pair), title, colour)
    picture.legend((("equal", _MOVED), ("differs", RED)))
    return picture.html()


def _size(pair: Mapping[str, Any]) -> float:
    """Return the relative norm of the change; infinite if it is not finite, or if NaN or Inf are in one tensor only."""
    norm: float = pair["relative_norm"]
    return norm if math.isfinite(norm) and not _is_finite_in_one_only(pair) else math.inf


def _is_finite_in_one_only(pair: Mapping[str, Any]) -> bool:
    a, b = pair["statistics_a"], pair["statistics_b"]
    return bool(a["nan"] != b["nan"] or a["inf"] != b["inf"])


def _change(pair: Mapping[str, Any]) -> str:
    if _is_finite_in_one_only(pair):
        return "NaN or Inf in one only"
    norm: float = pair["relative_norm"]
    return number(norm) if math.isfinite(norm) else "of a tensor of zeros"


def _shape(shape: Iterable[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _brief(value: Mapping[str, Any], side: str) -> str:
    text = "–" if value["only_in"] and value["only_in"] != side.upper() else str(value[side])
    return text if len(text) <= 200 else text[:199] + "…"
