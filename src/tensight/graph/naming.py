"""From the part of a name that a person typed to the node that is meant, and what is near where there is none."""

from __future__ import annotations

import difflib
import heapq
from typing import TYPE_CHECKING

from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SHOWN = 5
_LONGEST_TYPED = 200
_COMPARED = 200
"""Names that are compared letter by letter; the others have less in common with what was typed."""

_PIECE = 3
_SIMILAR = 0.6


def the_one_meant(names: Iterable[str], typed: str) -> str:
    """Return the name that a typed one means.

    Parameters
    ----------
    names : iterable of str
    typed : str
        As of `meant`.

    Raises
    ------
    InputError
        It may mean several, or means none; the message names some, or those that are near.
    """
    known = set(names)
    found = meant(known, typed)
    if len(found) == 1:
        return found[0]
    raise InputError(unclear(typed, found, () if found else nearest(known, typed)), code="node-unknown")


def unclear(typed: str, found: Sequence[str], near: Sequence[str]) -> str:
    """Return what to tell a person whose words mean no node, or several.

    Parameters
    ----------
    typed : str
    found : sequence of str
        What it may mean.
    near : sequence of str
        What is like it.
    """
    shown = repr(typed if len(typed) <= _LONGEST_TYPED else f"{typed[:_LONGEST_TYPED]}…")
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        return f"{shown} could be {', '.join(found[:_SHOWN])}{more}; give more of the name"
    return f"nothing is named {shown}" + (f"; similar: {', '.join(near)}" if near else "")


def meant(names: Iterable[str], typed: str) -> list[str]:
    """Return the names that a typed one may mean; a single one if that is clear.

    A full name means itself. Names that end with what was typed, after ``/`` or ``.``, come before those that only
    contain it. A weight comes before what is named after it, such as the states of an optimizer: ``conv1.weight`` means
    ``model.conv1.weight`` and not ``exp_avg.model.conv1.weight``.

    Parameters
    ----------
    names : iterable of str
    typed : str
        A name or a part of one; ``rank/graph/name`` means the name.

    Returns
    -------
    list of str
        Sorted; empty if nothing contains what was typed.
    """
    known = sorted(set(names))
    exact = [name for name in known if typed == name or typed.endswith(f"/{name}")]
    if exact:
        return [max(exact, key=len)]
    ends = [name for name in known if name.endswith((f"/{typed}", f".{typed}"))]
    return _without_states(ends or [name for name in known if typed in name])


def nearest(names: Iterable[str], typed: str, most: int = 3) -> list[str]:
    """Return the names that are most like a misspelt one, the nearest first; of 100,000 names within a second or two.

    Parameters
    ----------
    names : iterable of str
    typed : str
        A name, or the end of one.
    most : int
        At most so many.
    """
    wanted = typed[:_LONGEST_TYPED].lower()
    pieces = {wanted[at : at + _PIECE] for at in range(max(len(wanted) - _PIECE + 1, 1))}
    lower = {name: name.lower() for name in names}

    def pieces_in_common(name: str) -> tuple[int, int]:
        return sum(piece in lower[name] for piece in pieces), -len(name)

    compared = heapq.nlargest(_COMPARED, lower, key=pieces_in_common)
    likeness = {name: _likeness(lower[name], wanted) for name in compared}
    near = sorted((name for name in compared if likeness[name] >= _SIMILAR), key=lambda name: (-likeness[name], name))
    return _without_states(near)[:most]


def _likeness(name: str, typed: str) -> float:
    """Return how much a typed name is like another, or like the end of it with as many parts; from 0 to 1."""
    parts = typed.count("/") + typed.count(".") + 1
    separators = [at for at, letter in enumerate(name) if letter in "/."]
    end = name if len(separators) < parts else name[separators[-parts] + 1 :]
    return max(difflib.SequenceMatcher(None, typed, other, autojunk=False).ratio() for other in {end, name})


def _without_states(names: Sequence[str]) -> list[str]:
    """Leave out names that consist of another one and something before or behind it, after a dot."""
    known = set(names)
    return [name for name in names if known.isdisjoint(_names_within(name))]


def _names_within(name: str) -> Iterator[str]:
    for at, letter in enumerate(name):
        if letter == ".":
            yield name[at + 1 :]
            yield name[:at]
