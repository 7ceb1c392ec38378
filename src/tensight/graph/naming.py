"""Resolution of typed names, or parts of names, to nodes, with similar names if there is no match."""

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
"""Number of names that are compared by letters, after a preselection by common pieces."""

_PIECE = 3
_SIMILAR = 0.6


def the_one_meant(names: Iterable[str], typed: str) -> str:
    """Return the only name that a typed name can mean.

    Parameters
    ----------
    names : iterable of str
    typed : str
        See `meant`.

    Raises
    ------
    InputError
        The typed name is ambiguous or unknown; the message lists candidates or similar names.
    """
    distinct = set(names)
    matches = meant(distinct, typed)
    if len(matches) == 1:
        return matches[0]
    raise InputError(unclear(typed, matches, () if matches else nearest(distinct, typed)), code="node-unknown")


def unclear(typed: str, matches: Sequence[str], near: Sequence[str]) -> str:
    """Return the error message for a typed name that is ambiguous or unknown.

    Parameters
    ----------
    typed : str
    matches : sequence of str
        Names that it may mean.
    near : sequence of str
        Similar names.
    """
    shown = repr(typed if len(typed) <= _LONGEST_TYPED else f"{typed[:_LONGEST_TYPED]}…")
    if matches:
        more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
        return f"{shown} could be {', '.join(matches[:_SHOWN])}{more}; give more of the name"
    return f"nothing is named {shown}" + (f"; similar: {', '.join(near)}" if near else "")


def meant(names: Iterable[str], typed: str) -> list[str]:
    """Return the names that a typed name may mean; only one if it is unambiguous.

    A full name means itself. Names that end with the typed text, after ``/`` or ``.``, take precedence over those that
    only contain it. A weight takes precedence over parameters named after it, such as optimizer states:
    ``conv1.weight`` means ``model.conv1.weight``, not ``exp_avg.model.conv1.weight``.

    Parameters
    ----------
    names : iterable of str
    typed : str
        A name or a part of one; ``rank/graph/name`` means the name.

    Returns
    -------
    list of str
        Sorted names; empty if no name contains the typed text.
    """
    candidates = sorted(set(names))
    exact = [name for name in candidates if typed == name or typed.endswith(f"/{name}")]
    if exact:
        return [max(exact, key=len)]
    ends = [name for name in candidates if name.endswith((f"/{typed}", f".{typed}"))]
    return _without_states(ends or [name for name in candidates if typed in name])


def nearest(names: Iterable[str], typed: str, most: int = 3) -> list[str]:
    """Return the names most similar to a misspelt one, nearest first.

    Takes one or two seconds for 100,000 names.

    Parameters
    ----------
    names : iterable of str
    typed : str
        A name, or the end of one.
    most : int
        Maximum number of names to return.
    """
    lower_typed = typed[:_LONGEST_TYPED].lower()
    pieces = {lower_typed[at : at + _PIECE] for at in range(max(len(lower_typed) - _PIECE + 1, 1))}
    lower = {name: name.lower() for name in names}

    def pieces_in_common(name: str) -> tuple[int, int]:
        return sum(piece in lower[name] for piece in pieces), -len(name)

    compared = heapq.nlargest(_COMPARED, lower, key=pieces_in_common)
    likeness = {name: _likeness(lower[name], lower_typed) for name in compared}
    near = sorted((name for name in compared if likeness[name] >= _SIMILAR), key=lambda name: (-likeness[name], name))
    return _without_states(near)[:most]


def _likeness(name: str, typed: str) -> float:
    """Return the similarity of a typed name to another, or to its end with as many parts, from 0 to 1."""
    parts = typed.count("/") + typed.count(".") + 1
    separators = [at for at, letter in enumerate(name) if letter in "/."]
    end = name if len(separators) < parts else name[separators[-parts] + 1 :]
    return max(difflib.SequenceMatcher(None, typed, other, autojunk=False).ratio() for other in {end, name})


def _without_states(names: Sequence[str]) -> list[str]:
    """Remove names that consist of another one with a prefix or suffix, separated by a dot."""
    all_names = set(names)
    return [name for name in names if all_names.isdisjoint(_names_within(name))]


def _names_within(name: str) -> Iterator[str]:
    for at, letter in enumerate(name):
        if letter == ".":
            yield name[at + 1 :]
            yield name[:at]
