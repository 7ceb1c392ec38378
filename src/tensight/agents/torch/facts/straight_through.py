"""Straight-through estimators whose gradient cancels in autograd's graph: z + (q - z) without a detach is q."""

from __future__ import annotations

from typing import Any

from tensight.agents.torch.facts.autograd_functions import graph_behind, kind_of

_FLAT = frozenset(("Round", "Sign", "Sgn", "Floor", "Ceil", "Trunc"))
"""Functions whose gradient is 0."""


def cancels(node: Any) -> bool:
    """Whether a sum adds and subtracts the same tensor, which nothing else in it leads to.

    Parameters
    ----------
    node : autograd function
        One of a sum, or of a difference.
    """
    edges = _terms(node)
    if kind_of(node) == "Add":
        splits = [(edges[at], edges[1 - at][0], "Sub") for at in range(len(edges))]
    else:
        splits = [(edges[1], edges[0][0], "Add")] if edges else []
    for same, inner, kind in splits:
        if same[0] is None or kind_of(inner) != kind:
            continue
        terms = _terms(inner)
        if kind == "Sub":
            others = [terms[0][0]] if terms and terms[1] == same else []
        else:
            others = [terms[1 - at][0] for at in range(len(terms)) if terms[at] == same]
        if others and _is_apart(others[0], same[0]):
            return True
    return False


def _terms(node: Any) -> tuple[Any, ...]:
    """Return what made both terms of a sum or difference without a factor, and as which result; else nothing."""
    edges: tuple[Any, ...] = node.next_functions
    return edges if len(edges) == 2 and getattr(node, "_saved_alpha", None) == 1 else ()


def _is_apart(other: Any, node: Any) -> bool:
    """Whether no gradient leads from a function to another one, nor to what that is computed from."""
    if other is None:
        return True
    reached, behind = graph_behind([other], _FLAT), graph_behind([node])
    if reached is None or behind is None:
        return False
    return not behind & {each for each in reached if kind_of(each) not in _FLAT}
