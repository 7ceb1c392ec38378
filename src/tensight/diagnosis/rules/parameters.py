"""What rules about parameters share: which of them are trained, and how a finding names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.diagnosis.findings import MOST_NAMED, listed

if TYPE_CHECKING:
    import numpy as np
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
