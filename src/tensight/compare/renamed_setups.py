"""Renaming of the layers in the description of a model to those of another model.

Weights with the same initial values are taken for the same; the names of the layers around them follow.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tensight.compare.renaming import paths_in_b

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_IN_COMMON = 0.5
"""If more than this share of the names is common, nothing is renamed."""

_FEWEST_ALIKE = 0.8
"""Share of weights that must be the same for two models to be taken for the same."""


def with_names_of(a: Mapping[str, object], b: Mapping[str, object]) -> tuple[Mapping[str, object], int]:
    """Return description `a` with the names that `b` uses.

    Parameters
    ----------
    a, b : mapping
        As `tensight.agents.setup.describe` returns. Only descriptions of a single model are renamed.

    Returns
    -------
    mapping
        Description of A; unchanged if the models share most names or differ.
    int
        Number of weights that were renamed.
    """
    model_a, model_b = _only_model(a), _only_model(b)
    names = {} if model_a is None or model_b is None else _same_weights(model_a, model_b)
    changed = sum(name != other for name, other in names.items())
    if model_a is None or not changed:
        return a, 0
    layers = paths_in_b((name.split("."), other.split(".")) for name, other in names.items())
    names |= {path.replace("/", "."): other.replace("/", ".") for path, other in layers.items()}
    return {
        **a,
        "models": [{key: _renamed(entry, names) for key, entry in model_a.items()}],
        "optimizers": _renamed(a.get("optimizers"), names),
    }, changed


def _only_model(description: Mapping[str, object]) -> dict[str, Any] | None:
    models = description.get("models")
    if isinstance(models, list) and len(models) == 1 and isinstance(models[0], dict):
        return models[0]
    return None


def _same_weights(a: dict[str, Any], b: dict[str, Any]) -> dict[str, str]:
    of_a, of_b = a.get("parameters"), b.get("parameters")
    if not isinstance(of_a, dict) or not isinstance(of_b, dict) or not of_a or not of_b:
        return {}
    if len(of_a.keys() & of_b.keys()) > _MOST_IN_COMMON * min(len(of_a), len(of_b)):
        return {}
    groups: dict[tuple[str, ...], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, parameters in enumerate((of_a, of_b)):
        for name, weight in parameters.items():
            if isinstance(weight, dict) and weight.get("hash"):
                groups[tuple(repr(weight.get(key)) for key in ("dtype", "shape", "hash"))][side].append(str(name))
    alike = {
        name_a: name_b
        for names_a, names_b in groups.values()
        if len(names_a) == len(names_b)
        for name_a, name_b in zip(names_a, names_b, strict=True)
    }
    return alike if len(alike) >= _FEWEST_ALIKE * max(len(of_a), len(of_b)) else {}


def _renamed(content: object, names: Mapping[str, str], depth: int = 0) -> object:
    """Return content with the names of A replaced by those of B, in keys and in texts."""
    if depth > 8:
        return content
    if isinstance(content, dict):
        return {names.get(str(key), key): _renamed(entry, names, depth + 1) for key, entry in content.items()}
    if isinstance(content, list):
        return [_renamed(entry, names, depth + 1) for entry in content]
    return names.get(content, content) if isinstance(content, str) else content
