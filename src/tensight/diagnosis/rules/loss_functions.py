"""What rules about loss functions have in common: their rows, the places and the words of their findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.diagnosis.findings import Certainty, Finding
from tensight.diagnosis.rule import DIVERGENCE, Rule, Words
from tensight.diagnosis.rules.passes import function_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tensight.diagnosis.facts import Facts

_SQUASHING = ("softmax", "sigmoid", "tanh", "relu")

_LEAST_STEPS = 2


def functions_of(facts: Facts) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each loss function with its rows; those of a step that was the only one are left out."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for name, row in zip(function_names(facts), facts["loss_functions"].rows(), strict=True):
        by_name.setdefault(name, []).append(row)
    for name, rows in by_name.items():
        if len(rows) >= _LEAST_STEPS:
            yield name, rows


def are_always(rows: list[dict[str, Any]], fact: str, value: object) -> bool:
    """Return whether a fact has the same given value in all rows."""
    return all(row[fact] == value for row in rows)


def _where(rows: Sequence[Mapping[str, Any]], *, activation: bool = False) -> dict[str, str]:
    # Lines are noted in the first steps of a stage, or in the ones after those.
    lines = [(row["before_line"] if activation else "") or row["line"] for row in rows]
    return {"operator": rows[0]["called"] or rows[0]["function"], "line": next(filter(None, lines), "")}


def first_activation(row: Mapping[str, Any]) -> str:
    """Return the last function before a loss function, if that is an activation."""
    names = row["before"].split()
    return names[0] if names and names[0] in (*_SQUASHING, "log_softmax", "logsigmoid", "exp", "log") else ""


def finding_of(
    rule: str,
    certainty: Certainty,
    rows: list[dict[str, Any]],
    message: str,
    *,
    activation: bool = False,
    **values: object,
) -> Finding:
    """Return a finding about a loss function.

    Parameters
    ----------
    rule : str
    certainty : {"certain", "likely", "possible"}
    rows : list of dict
        Of ``loss_functions``; the first one is the place, and what the sentences may name.
    message : str
    activation : bool
        Whether the place is the activation before it.
    **values : object
        Further values that the sentences name.
    """
    row = rows[0]
    described = {
        **row,
        "loss_function": row["called"] or row["function"],
        "activation": first_activation(row),
        "steps": len(rows),
        **values,
    }
    return Finding(rule, certainty, row["step"], message, described, _where(rows, activation=activation))


def rule_of(
    id_: str,
    category: str,
    judge: Any,
    message: Mapping[str, tuple[str, str]],
    evidence: Mapping[str, tuple[str, str]],
    advice: tuple[str, str],
    silent: tuple[str, str] = ("", ""),
    rank: int = 10,
    advice_on: Mapping[str, Words] | None = None,
    needs: str = "loss_functions",
) -> Rule:
    """Return a rule about a loss function, which explains what follows from a wrong one.

    Parameters
    ----------
    id_, category, message, evidence, advice, silent, rank, advice_on
        As of `Rule`.
    judge : callable
    needs : str
        The facts without which it cannot judge.
    """
    explains = frozenset(
        (
            *("loss-stays", "loss-zero", "loss-constant", "zero-gradient", "loss-start", "no-gradient", "loss-sign"),
            *("targets-out-of-reach", "loss-negative", "clipped-away", *DIVERGENCE),
        )
    ) - {id_}
    return Rule(
        *(id_, category, (needs,), judge, message, evidence, advice, silent, explains, rank), advice_on=advice_on or {}
    )
