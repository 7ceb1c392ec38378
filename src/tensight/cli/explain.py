"""`tensight explain`: what a rule of `tensight diagnose` finds, and what to do then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.options import Json, Rules
from tensight.cli.output import console, print_json, table
from tensight.errors import InputError

if TYPE_CHECKING:
    from tensight.diagnosis.rule import Rule


def explain(
    rule: Annotated[
        str | None, typer.Argument(metavar="RULE", help="Its id, as `tensight diagnose` prints it.")
    ] = None,
    rules: Rules = None,
    json: Json = False,
) -> None:
    """Say what a rule of `tensight diagnose` finds, what it is silent about, and what to do; or list all rules."""
    from rich.markup import escape

    from tensight.diagnosis.catalogue import RULES, load_user_rules
    from tensight.diagnosis.findings import CATEGORIES

    every = dict(RULES)
    if rules is not None:
        every |= {each.id: each for each in load_user_rules(rules)}
    if rule is not None and rule not in every:
        import difflib

        close = difflib.get_close_matches(rule, every, 1)
        hint = f"did you mean {close[0]}?" if close else "`tensight explain` lists them"
        raise InputError(f"unknown rule {rule[:80]!r}; {hint}")
    chosen = list(every.values()) if rule is None else [every[rule]]
    if json:
        print_json([_data(each) for each in chosen])
        return
    out = console()
    if rule is None:
        rows = table("rule", "kind", "finds")
        for each in chosen:
            rows.add_row(each.id, CATEGORIES[each.category][0], escape(each.summary))
        out.print(rows)
        return
    (each,) = chosen
    out.print(f"[bold]{each.id}[/]: {CATEGORIES[each.category][0]}")
    out.print(f"Finds {escape(each.summary[:1].lower() + each.summary[1:])}")
    for advice in dict.fromkeys((each.advice[0], *(words[0] for words in each.advice_on.values()))):
        if advice:
            out.print(f"What to do: {escape(advice)}.")
    if each.silent[0]:
        out.print(f"Silent about: {escape(each.silent[0])}")
    out.print(f"Needs: {', '.join(each.needs) or 'nothing'}")


def _data(each: Rule) -> dict[str, object]:
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
