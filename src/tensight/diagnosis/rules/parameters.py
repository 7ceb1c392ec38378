"""What rules about parameters share: which of them are trained, and how a finding names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import MOST_NAMED, listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Table


def are_trained(table: Table) -> NDArray[np.bool_]:
    """Return which parameters are trainable and updated by an optimizer: shape (steps, parameters)."""
    trained: NDArray[np.bool_] = table.panel("is_trainable") & (table.panel("optimizers") > 0)
    return trained


def where_of(table: Table, names: list[str]) -> dict[str, str]:
    """Return the place of a finding about parameters: their names, and those of their modules."""
    modules = table.last("module")
    named = list(dict.fromkeys(modules[name] for name in names))
    return {"parameter": listed(names, MOST_NAMED), "module": listed(named, MOST_NAMED)}


def frozen_share(table: Table) -> float:
    """Return the share of the elements of all parameters that are frozen in all steps."""
    elements, trainable = table.last("elements"), np.asarray(table.panel("is_trainable").any(0))
    return float(sum(elements[name] for name in table.chosen(~trainable)) / max(sum(elements.values()), 1))


def are_as_made(table: Table, biases: Iterable[str]) -> bool:
    """Whether biases of normalizations are 0 in all steps: they begin so, and training moves them."""
    are_zero = dict(zip(table.names, np.asarray(table.panel("is_zero").all(0)).tolist(), strict=True))
    return all(are_zero.get(name, False) for name in biases)
