"""The report of a comparison of the set-ups of two trainings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from tensight.cli.reports.parts import bullets, table, verdict

TITLE = "Set-ups of two trainings compared"


def body(data: Mapping[str, Any]) -> Iterable[str]:
    """Yield the parts of the report.

    Parameters
    ----------
    data : mapping
        As ``tensight compare setups --json`` prints.
    """
    from tensight.compare.setups import Importance

    yield table(("", "training"), [("A", data["a"]), ("B", data["b"])])
    yield verdict(data["verdict"], data["sentence"])
    for importance, of_importance in groupby(data["differences"], lambda difference: difference["importance"]):
        yield f"<h2>{Importance[importance.upper()].value.capitalize()}</h2>"
        rows = [
            (difference["part"], difference["what"], difference["a"], difference["b"]) for difference in of_importance
        ]
        yield table(("part", "", "A", "B"), rows)
    for what, names in (("The same", data["equal"]), ("Not recorded", data["not_recorded"])):
        if names:
            yield f"<h2>{what}</h2>" + bullets(names)
