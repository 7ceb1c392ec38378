"""`tensight explain`: what a rule of `tensight diagnose` finds, and what to do then."""

from __future__ import annotations

from typing import Annotated

import typer

from tensight.cli.options import Json
from tensight.cli.output import console, print_json, table
from tensight.errors import InputError


def explain(
    rule: Annotated[
        str | None, typer.Argument(metavar="RULE", help="Its id, as `tensight diagnose` prints it.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what a rule of `tensight diagnose` finds, what it is silent about, and what to do; or list all rules."""
    from tensight.diagnosis.catalogue import RULES
    from tensight.diagnosis.findings import CATEGORIES

    if rule is not None and rule not in RULES:
        import difflib

        close = difflib.get_close_matches(rule, RULES, 1)
        hint = f"did you mean {close[0]}?" if close else "`tensight explain` lists them"
        raise InputError(f"unknown rule {rule[:80]!r}; {hint}")
    chosen = list(RULES.values()) if rule is None else [RULES[rule]]
    if json:
        print_json([_data(each.id) for each in chosen])
        return
    out = console()
    if rule is None:
        rows = table("rule", "kind", "finds")
        for each in chosen:
            rows.add_row(each.id, CATEGORIES[each.category][0], each.summary)
        out.print(rows)
        return
    (each,) = chosen
    out.print(f"[bold]{each.id}[/]: {CATEGORIES[each.category][0]}")
    out.print(f"Finds {each.summary[0].lower()}{each.summary[1:]}")
    for advice in dict.fromkeys((each.advice[0], *(words[0] for words in each.advice_on.values()))):
        out.print(f"What to do: {advice}.")
    if each.silent[0]:
        out.print(f"Silent about: {each.silent[0]}")
    out.print(f"Needs: {', '.join(each.needs)}")


def _data(rule: str) -> dict[str, object]:
    from tensight.diagnosis.catalogue import RULES

    each = RULES[rule]
    return {
        "rule": each.id,
        "category": each.category,
        "finds": each.summary,
        "messages": {key: {"en": words[0], "zh": words[1]} for key, words in each.messages.items()},
        "advice": {"en": each.advice[0], "zh": each.advice[1]},
        "advice_on": {key: {"en": words[0], "zh": words[1]} for key, words in each.advice_on.items()},
        "silent": {"en": each.silent[0], "zh": each.silent[1]},
        "needs": list(each.needs),
    }
