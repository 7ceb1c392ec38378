"""Lists where our answers differ from the original's: in order, tensor by tensor, values within 1e-5 relative."""

from __future__ import annotations

import math
import re
from itertools import zip_longest
from typing import Any

RELATIVE = 1e-5
SHOWN = 12
ABSENT = "<absent>"


def differences(section: str, golden: Any, ours: Any, *, several_graphs: bool = False) -> list[str]:
    """Texts that each name a place, the original's answer and ours; empty when both agree.

    With several graphs the original finds files only in the last graph's folder of an iteration; ours may find more.
    In its workbook it then describes an operator's constant by the constant of that key in another graph, and calls a
    Load by one number in its own row and by another where it is consumed.
    """
    if section == "xlsx" and several_graphs:
        golden, ours = without_mix_ups(golden), without_mix_ups(ours)
    if section == "tensor_files" and several_graphs:
        ours = without_more_files(golden, ours)
    if section == "mistakes":
        found = [
            text for label in golden for text in mistake_differences(label, golden[label], ours.get(label, ABSENT))
        ]
    elif section.startswith("check ") and "hits" in golden and "hits" in ours:
        found = check_differences(golden, ours)
    else:
        found = plain_differences(section, golden, ours)
    return found if len(found) <= SHOWN else [*found[:SHOWN], f"… and {len(found) - SHOWN} more"]


def without_more_files(golden: Any, ours: Any) -> Any:
    """Ours, with its lists emptied where the original's are empty."""
    if isinstance(golden, dict) and isinstance(ours, dict):
        return {key: without_more_files(golden[key], value) if key in golden else value for key, value in ours.items()}
    return ours if golden else golden


def without_mix_ups(workbook: Any) -> Any:
    """The workbook without input types of operators that read a constant, and without numbers of consuming Loads."""
    rows = [list(row) for row in workbook["sheets"]["operator"]["rows"]]
    for row in rows:
        if "cst" in (row[1] or ""):
            row[2:4] = "", ""
        row[6] = re.sub(r"Load_\d+", "Load", row[6] or "")
    sheets = {**workbook["sheets"], "operator": {**workbook["sheets"]["operator"], "rows": rows}}
    return {**workbook, "sheets": sheets}


def mistake_differences(label: str, golden: Any, ours: Any) -> list[str]:
    """The same kind of exception (a subclass will do); the wording is our own."""
    if not raises(golden):
        return plain_differences(label, golden, ours)
    if not raises(ours):
        return [f"{label}: the original raises {golden['raises']}, ours gives {ours!r}"]
    accepted = {golden["raises"]}
    if golden["raises"] == "error":  # re.error; Python 3.13 calls it PatternError
        accepted = {"error", "PatternError"}
    elif not golden["raises"].startswith(
        "Debugger"
    ):  # the interpreter tripped over the argument; ours may say so properly
        accepted |= {"DebuggerParamTypeError", "DebuggerParamValueError"}
    if accepted & set(ours["bases"]):
        return []
    return [f"{label}: the original raises {golden['raises']}, ours {ours['raises']}: {ours['message']}"]


def raises(answer: Any) -> bool:
    return isinstance(answer, dict) and "raises" in answer


def check_differences(golden: Any, ours: Any) -> list[str]:
    """Hits in order: tensor, condition, error code and every parameter; then the texts."""
    found = []
    if len(golden["hits"]) != len(ours["hits"]):
        found.append(f"{len(golden['hits'])} hits in the original, {len(ours['hits'])} in ours")
        found += membership(golden["hits"], ours["hits"])
    if not found:
        for place, (theirs, own) in enumerate(zip(golden["hits"], ours["hits"], strict=True)):
            found += plain_differences(f"hit {place}", theirs, own)
    if not found:
        found += plain_differences("texts", golden["texts"], ours["texts"])
    if not found:
        found += plain_differences("digests of texts", golden["digests"], ours["digests"])
    return found


def membership(golden: list[Any], ours: list[Any]) -> list[str]:
    """Hits (tensor, condition, error code) that only one side has."""
    theirs, own = [tuple(hit[:5]) for hit in golden], [tuple(hit[:5]) for hit in ours]
    missing = [hit for hit in theirs if hit not in set(own)]
    extra = [hit for hit in own if hit not in set(theirs)]
    return [f"only in the original: {hit}" for hit in missing[:SHOWN]] + [
        f"only in ours: {hit}" for hit in extra[:SHOWN]
    ]


def plain_differences(place: str, golden: Any, ours: Any) -> list[str]:
    """Compare values, floats within the tolerance; not the wording of exceptions, nor the order of keys."""
    if raises(golden) or raises(ours):
        if raises(golden) and raises(ours):
            return mistake_differences(place, golden, ours)
        return [f"{place}: {golden!r} in the original, {ours!r} in ours"]
    if isinstance(golden, dict) and isinstance(ours, dict):
        found = [f"{place}: {key!r} only in ours" for key in ours if key not in golden]
        for key in golden:
            found += plain_differences(f"{place}.{key}", golden[key], ours.get(key, ABSENT))
        return found
    if isinstance(golden, list) and isinstance(ours, list):
        found = []
        for index, (theirs, own) in enumerate(zip_longest(golden, ours, fillvalue=ABSENT)):
            found += plain_differences(f"{place}[{index}]", theirs, own)
        return found
    if same(golden, ours):
        return []
    return [f"{place}: {golden!r} in the original, {ours!r} in ours"]


def same(golden: Any, ours: Any) -> bool:
    """Equal, or floats that are both NaN or within the tolerance; True is not 1."""
    if isinstance(golden, bool) or isinstance(ours, bool):
        return golden is ours
    if isinstance(golden, (int, float)) and isinstance(ours, (int, float)):
        if math.isnan(golden) or math.isnan(ours):
            return math.isnan(golden) and math.isnan(ours)
        return golden == ours or math.isclose(golden, ours, rel_tol=RELATIVE, abs_tol=1e-14)
    return type(golden) is type(ours) and golden == ours
