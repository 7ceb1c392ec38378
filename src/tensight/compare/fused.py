"""Fused matrices: the parameters of one model that are rows of a parameter of another, by names and shapes."""

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
"""The last word of a fused matrix's module, and those of its parts; parts are also recognised by their first letter."""


def is_fused(name: str) -> bool:
    """Return whether a parameter has the name of a fused matrix."""
    return not _FUSED.keys().isdisjoint(plain_name(name).split("."))


def fused_parts(name: str, shape: tuple[int, ...], others: Mapping[str, tuple[int, ...]]) -> list[tuple[str, int, int]]:
    """Return the parameters that are rows of a fused one.

    Parameters
    ----------
    name : str
        Name of the fused parameter.
    shape : tuple of int
        Its shape, transposed if its transpose is to be tried.
    others : mapping of str to tuple of int
        Shapes of the other model's parameters, by `plain_name`.

    Returns
    -------
    list of (str, int, int)
        Plain name, first row and number of rows of each part, in order; empty if the shapes do not add up.
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
        shapes = [others[part_name] for part_name in names if part_name is not None]
        if len(shapes) != len(words) or any(part_shape[1:] != shape[1:] or not part_shape for part_shape in shapes):
            continue
        if sum(part_shape[0] for part_shape in shapes) != shape[0]:
            continue
        parts, first = [], 0
        for part_name in names:
            if part_name is not None:
                parts.append((part_name, first, others[part_name][0]))
                first += others[part_name][0]
        return parts
    return []


def _similar(others: Mapping[str, object], before: list[str], word: str, after: list[str]) -> str | None:
    """Return the only tensor beside a fused one whose name resembles that of the part: "q", "wq", "to_q", "query"."""
    letter = word[0]
    spellings = {letter, f"w{letter}", f"to_{letter}", f"{letter}_proj", f"{letter}_lin", f"linear_{letter}"}
    spellings |= {{"q": "query", "k": "key", "v": "value"}.get(letter, word)}
    end = word.partition(".")[2]
    candidates = {
        key
        for spelling in spellings
        if (key := ".".join([*before, spelling, *([end] if end else []), *after])) in others
    }
    return candidates.pop() if len(candidates) == 1 else None
