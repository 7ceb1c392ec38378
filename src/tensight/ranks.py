"""Which ranks something is true of, in a few words: a run of a thousand ranks has a thousand equal statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_MOST_PARTS = 8
"""Ranks and ranges of ranks up to which all are listed."""

_FEW_PARTS = 3
"""How many are listed of more."""


def ranks_text(ranks: Collection[int], of: Collection[int]) -> str:
    """Return which ranks something is true of, with the minority by number.

    Parameters
    ----------
    ranks : collection of int
        Those of which it is true; at least one.
    of : collection of int
        All of which it could be true. Ranks that are not among them count, too.

    Returns
    -------
    str
        Such as ``on all 1,024 ranks``, ``on 1,023 of 1,024 ranks; not on 17``, ``on 64 of 1,024 ranks (64-127)``,
        ``on 16 of 1,024 ranks (20, 84, 148 …)`` or ``on rank 3``.

    Raises
    ------
    ValueError
        There is no rank of which it is true.
    """
    true = set(ranks)
    if not true:
        raise ValueError("a statement about ranks needs at least one of them")
    if len(true) == 1:
        return f"on rank {min(true)}"
    every = true.union(of)
    others = every - true
    if not others:
        return f"on all {len(every):,} ranks"
    share = f"on {len(true):,} of {len(every):,} ranks"
    if len(others) < len(true):
        return f"{share}; not on {_listed(others)}"
    return f"{share} ({_listed(true)})"


def ranges(numbers: Iterable[int]) -> list[str]:
    """Return distinct numbers as text, in ascending order, consecutive ones as a range: ``["0-3", "7"]``.

    Parameters
    ----------
    numbers : iterable of int
        In any order.
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]


def _listed(ranks: Iterable[int]) -> str:
    """Return ranks as text; of many only the first."""
    parts = ranges(ranks)
    if len(parts) > _MOST_PARTS:
        return f"{', '.join(parts[:_FEW_PARTS])} …"
    return ", ".join(parts)
