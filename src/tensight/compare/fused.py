"""Fused matrices: which parameters of one model are rows of one parameter of another, by their names and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.compare.renaming import plain_name

if TYPE_CHECKING:
    from collections.abc import Mapping

_FUSED = {
    "qkv": ("q", "k", "v"),
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "query_key_value": ("query", "key", "value"),
    "c_attn": ("q_proj", "k_proj", "v_proj"),
    "in_proj_weight": ("q_proj.weight", "k_proj.weight", "v_proj.weight"),
    "in_proj_bias": ("q_proj.bias", "k_proj.bias", "v_proj.bias"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
"""The last word of a fused matrix's module, and those of its parts; any part is recognised by its first letter, too."""


def is_fused(name: str) -> bool:
    """Return whether a parameter is called as fused ones are."""
    return not _FUSED.keys().isdisjoint(plain_name(name).split("."))


def fused_parts(name: str, shape: tuple[int, ...], others: Mapping[str, tuple[int, ...]]) -> list[tuple[str, int, int]]:
    """Return which parameters are rows of a fused one.

    Parameters
    ----------
    name : str
        Of the fused one.
    shape : tuple of int
        Its shape, transposed if it may lie so.
    others : mapping of str to tuple of int
        Shapes of the other model's parameters, by `plain_name`.

    Returns
    -------
    list of (str, int, int)
        Plain name, first row and number of rows of each, in order; empty if they do not add up.
    """
    pieces = plain_name(name).split(".")
    if not shape:
        return []
    for fused, words in _FUSED.items():
        if fused not in pieces:
            continue
        at = pieces.index(fused)
        names = []
        for word in words:
            exact = ".".join([*pieces[:at], word, *pieces[at + 1 :]])
            names.append(exact if exact in others else _similar(others, pieces[:at], word, pieces[at + 1 :]))
        shapes = [others[one] for one in names if one is not None]
        if len(shapes) != len(words) or any(one[1:] != shape[1:] or not one for one in shapes):
            continue
        if sum(one[0] for one in shapes) != shape[0]:
            continue
        parts, first = [], 0
        for one in names:
            if one is not None:
                parts.append((one, first, others[one][0]))
                first += others[one][0]
        return parts
    return []


def _similar(others: Mapping[str, object], before: list[str], word: str, after: list[str]) -> str | None:
    """Return the one tensor beside a fused one that is called much like a part of it: "q", "wq", "to_q", "query"."""
    letter = word[0]
    spellings = {letter, f"w{letter}", f"to_{letter}", f"{letter}_proj", f"{letter}_lin", f"linear_{letter}"}
    spellings |= {{"q": "query", "k": "key", "v": "value"}.get(letter, word)}
    end = word.partition(".")[2]
    found = {
        key
        for spelling in spellings
        if (key := ".".join([*before, spelling, *([end] if end else []), *after])) in others
    }
    return found.pop() if len(found) == 1 else None
