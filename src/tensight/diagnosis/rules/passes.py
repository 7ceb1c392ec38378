"""The backward passes of a step: of several losses, or of one loss over several batches whose gradients add up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts


def _accumulation(facts: Facts) -> Iterator[bool]:
    losses, functions = facts["losses"], facts["loss_functions"]
    lines = set(losses["line"].tolist())
    is_of_script = len(losses.names) > 1 and len(lines) == 1 and "" not in lines
    is_of_optimizer = len(set(facts["groups"]["optimizer"].tolist())) == 1
    if not is_of_script or not is_of_optimizer:
        yield False
        return
    kinds: dict[tuple[int, str], list[str]] = {}
    keys = zip(functions["step"].tolist(), functions["loss"].tolist(), strict=True)
    for key, function in zip(keys, functions["function"].tolist(), strict=True):
        kinds.setdefault(key, []).append(function)
    yield len(set(map(tuple, kinds.values()))) <= 1


def is_accumulating(facts: Facts) -> bool:
    """Whether the backward passes of a step are those of one loss over several batches.

    They begin at the same line, have the same loss functions, and one optimizer follows them.
    """
    return facts.derived(_accumulation)[0]


def _names(facts: Facts) -> Iterator[str]:
    table = facts["loss_functions"]
    names = table["name"].tolist()
    if not is_accumulating(facts):
        yield from names
        return
    counts: dict[tuple[int, str, str], int] = {}
    keys = zip(table["step"].tolist(), table["loss"].tolist(), table["function"].tolist(), strict=True)
    for key in keys:
        counts[key] = count = counts.get(key, 0) + 1
        yield key[2] if count == 1 else f"{key[2]} {count}"


def function_names(facts: Facts) -> list[str]:
    """Return the name of the loss function of each row of ``loss_functions``: in all batches of a step the same."""
    return facts.derived(_names)
