"""Writes the ``statistic.csv`` that a device would have written, from the real values of a dump, with plain NumPy."""

from __future__ import annotations

import csv
import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FIXED = ("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape")
OLD = (
    "Max Value", "Min Value", "Avg Value", "Count", "Negative Zero Count", "Positive Zero Count", "NaN Count",
    "Negative Inf Count", "Positive Inf Count", "Zero Count",
)  # fmt: skip
"""The columns of MindSpore up to 2.2."""

COUNTS = tuple(name.lower() for name in OLD[3:])
EVERYTHING = ("max", "min", "avg", "l2norm", *COUNTS, "md5")
DEFAULT = ("max", "min", "l2norm")
"""What MindSpore writes from 2.3 on unless it is told otherwise."""


def text(value: float) -> str:
    """A number as a C++ stream prints it."""
    return f"{value:.6g}"


def values_of(array: np.ndarray[Any, Any], *, skip_non_finite: bool) -> dict[str, str]:
    """The statistics of a tensor; old versions leave NaN and Inf out of the extremes, newer ones let them take part."""
    x = array.astype(np.float64).ravel()
    finite = x[np.isfinite(x)]
    used = finite if skip_non_finite else x
    signed = finite if skip_non_finite else x
    nothing = used.size == 0
    with np.errstate(all="ignore"):
        return {
            "max": "-1.79769e+308" if nothing else text(np.max(used)),
            "min": "1.79769e+308" if nothing else text(np.min(used)),
            "avg": "0" if nothing else text(np.mean(used)),
            "l2norm": text(np.sqrt(np.sum(x * x))),
            "count": str(x.size),
            "negative zero count": str(np.sum(signed < 0)),
            "positive zero count": str(np.sum(signed > 0)),
            "nan count": str(np.sum(np.isnan(x))),
            "negative inf count": str(np.sum(np.isneginf(x))),
            "positive inf count": str(np.sum(np.isposinf(x))),
            "zero count": str(np.sum(x == 0)),
            "md5": hashlib.md5(array.tobytes(), usedforsecurity=False).hexdigest(),
        }


def record(folder: Path, columns: Sequence[str], *, keep_values: bool = False) -> int:
    """Write ``statistic.csv`` beside the files of one iteration, and delete them. Returns the number of lines."""
    old = tuple(columns) == OLD
    keys = [column.lower().removesuffix(" value") for column in columns]
    lines = []
    for path in sorted(folder.glob("*.npy")):
        fields = path.name.removesuffix(".npy").split(".")
        place = next(index for index, field in enumerate(fields) if index > 1 and field in ("input", "output"))
        array = np.load(path)
        shape = "(" + "".join(f"{size}," for size in array.shape) + ")"
        found = values_of(array, skip_non_finite=old)
        lines.append(
            [
                fields[0], ".".join(fields[1 : place - 3]), *fields[place - 3 : place], fields[place],
                fields[place + 1], str(array.nbytes), str(array.dtype), shape, *(found[key] for key in keys),
            ]
        )  # fmt: skip
        if not keep_values:
            path.unlink()
    with (folder / "statistic.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([[*FIXED, *columns], *lines])
    return len(lines)


def record_dump(root: Path, columns: Sequence[str], *, keep_values: bool = False) -> int:
    """Turn a dump of values into one of statistics. Returns the number of lines."""
    folders = {path.parent for path in root.rglob("*.npy") if path.parent.name.isdigit()}
    return sum(record(folder, columns, keep_values=keep_values) for folder in sorted(folders))
